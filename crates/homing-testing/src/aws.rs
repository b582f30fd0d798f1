//! Amazon Bedrock's side of a conversation: frames of its event streams, and the check of a request's signature.

use sha2::{Digest, Sha256};

use crate::{FakeResponse, ReceivedRequest};

/// Returns one frame of an event stream with these text headers.
pub fn aws_frame(headers: &[(&str, &str)], payload: &str) -> Vec<u8> {
    let mut encoded = Vec::new();
    for (name, value) in headers {
        encoded.push(u8::try_from(name.len()).expect("header names are short"));
        encoded.extend_from_slice(name.as_bytes());
        encoded.push(7);
        encoded.extend_from_slice(&u16::try_from(value.len()).expect("header values are short").to_be_bytes());
        encoded.extend_from_slice(value.as_bytes());
    }
    let length = |length: usize| u32::try_from(length).expect("frames are small").to_be_bytes();
    let mut frame = length(16 + encoded.len() + payload.len()).to_vec();
    frame.extend_from_slice(&length(encoded.len()));
    frame.extend_from_slice(&crc32(&frame).to_be_bytes());
    frame.extend_from_slice(&encoded);
    frame.extend_from_slice(payload.as_bytes());
    frame.extend_from_slice(&crc32(&frame).to_be_bytes());
    frame
}

/// Returns a frame with an event, such as `contentBlockDelta`.
pub fn aws_event(event: &str, payload: &str) -> Vec<u8> {
    let headers = [(":event-type", event), (":content-type", "application/json"), (":message-type", "event")];
    aws_frame(&headers, payload)
}

/// Returns a frame with an exception, such as `throttlingException`.
pub fn aws_exception(kind: &str, payload: &str) -> Vec<u8> {
    let headers = [(":exception-type", kind), (":content-type", "application/json"), (":message-type", "exception")];
    aws_frame(&headers, payload)
}

impl FakeResponse {
    /// Creates a complete event stream of these frames.
    pub fn aws_frames(frames: &[Vec<u8>]) -> Self {
        Self::response(200, &[("content-type", "application/vnd.amazon.eventstream")], frames.concat())
    }
}

/// Checks the signature of a request as AWS does: from what arrived, with the secret key of `access_key`.
///
/// # Errors
/// Fails with the difference if the request is not signed, or if its signature or one of its parts is wrong.
pub fn check_aws_signature(
    request: &ReceivedRequest,
    access_key: &str,
    secret: &str,
    region: &str,
) -> Result<(), String> {
    let header = |name: &str| request.header(name).ok_or_else(|| format!("no header {name}"));
    let given = header("authorization")?;
    let part = |name: &str| {
        let parts = given.split_once(' ')?.1.split(", ");
        parts.filter_map(|part| part.split_once('=')).find(|(key, _)| *key == name).map(|(_, value)| value)
    };
    let (Some(credential), Some(names), Some(signature)) =
        (part("Credential"), part("SignedHeaders"), part("Signature"))
    else {
        return Err(format!("not a signature: {given}"));
    };
    let at = header("x-amz-date")?;
    let date = at.get(..8).unwrap_or_default();
    let scope = format!("{date}/{region}/bedrock/aws4_request");
    if credential != format!("{access_key}/{scope}") {
        return Err(format!("wrong credential: {credential}"));
    }
    if !names.split(';').any(|name| name == "host") || !names.split(';').any(|name| name == "x-amz-date") {
        return Err(format!("host and x-amz-date must be signed: {names}"));
    }
    let mut canonical = format!("{}\n", request.method);
    let (path, query) = request.path.split_once('?').unwrap_or((&request.path, ""));
    canonical.push_str(&path.replace('%', "%25"));
    canonical.push_str(&format!("\n{query}\n"));
    for name in names.split(';') {
        canonical.push_str(&format!("{name}:{}\n", header(name)?));
    }
    canonical.push_str(&format!("\n{names}\n{:x}", Sha256::digest(request.body.as_bytes())));
    let to_sign = format!("AWS4-HMAC-SHA256\n{at}\n{scope}\n{:x}", Sha256::digest(canonical.as_bytes()));
    let mut key = format!("AWS4{secret}").into_bytes();
    for part in scope.split('/') {
        key = hmac(&key, part.as_bytes());
    }
    let expected: String = hmac(&key, to_sign.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect();
    if signature == expected {
        Ok(())
    } else {
        Err(format!("signature {signature}, expected {expected} of\n{canonical}"))
    }
}

/// HMAC-SHA256 with a key of at most 64 bytes.
fn hmac(key: &[u8], message: &[u8]) -> Vec<u8> {
    assert!(key.len() <= 64, "the keys of tests are short");
    let padded = |pad: u8| (0..64).map(|at| key.get(at).copied().unwrap_or(0) ^ pad).collect::<Vec<u8>>();
    let inner = Sha256::digest([&padded(0x36)[..], message].concat());
    Sha256::digest([&padded(0x5c)[..], &inner[..]].concat()).to_vec()
}

/// CRC-32, as in zip and png.
fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32| if crc & 1 == 1 { (crc >> 1) ^ 0xedb8_8320 } else { crc >> 1 };
    !bytes.iter().fold(!0_u32, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), |crc, _| step(crc)))
}
