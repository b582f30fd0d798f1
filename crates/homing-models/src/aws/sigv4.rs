//! AWS Signature Version 4: the `Authorization` header of a request.

use std::time::SystemTime;

use crate::url::Url;
use secrecy::ExposeSecret;
use sha2::{Digest, Sha256};

use super::AwsCredentials;

const ALGORITHM: &str = "AWS4-HMAC-SHA256";

/// A request to sign. All of `headers` are signed; their names are in lower case.
pub(super) struct Request<'a> {
    pub(super) method: &'a str,
    pub(super) url: &'a Url,
    pub(super) headers: Vec<(String, String)>,
    pub(super) body: &'a [u8],
}

/// The region, the service and the time for which a signature is valid.
pub(super) struct Scope<'a> {
    pub(super) region: &'a str,
    pub(super) service: &'a str,
    /// As returned by [`timestamp`], and as in the header `x-amz-date`.
    pub(super) at: String,
}

impl Scope<'_> {
    fn date(&self) -> &str {
        self.at.get(..8).unwrap_or_default()
    }

    fn path(&self) -> String {
        format!("{}/{}/{}/aws4_request", self.date(), self.region, self.service)
    }
}

/// A time in the form that AWS signs, such as `20150830T123600Z`.
pub(super) fn timestamp(now: SystemTime) -> String {
    let now = jiff::Timestamp::try_from(now).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    now.strftime("%Y%m%dT%H%M%SZ").to_string()
}

/// The value of the `Authorization` header.
pub(super) fn authorization(request: &Request<'_>, credentials: &AwsCredentials, scope: &Scope<'_>) -> String {
    let mut headers = request.headers.clone();
    headers.sort();
    let names: Vec<&str> = headers.iter().map(|(name, _)| name.as_str()).collect();
    let names = names.join(";");
    let lines: String = headers.iter().map(|(name, value)| format!("{name}:{}\n", value.trim())).collect();
    let canonical = format!(
        "{}\n{}\n{}\n{lines}\n{names}\n{}",
        request.method,
        canonical_path(request.url),
        canonical_query(request.url),
        hex(&Sha256::digest(request.body)),
    );
    let to_sign =
        format!("{ALGORITHM}\n{}\n{}\n{}", scope.at, scope.path(), hex(&Sha256::digest(canonical.as_bytes())));
    let secret = format!("AWS4{}", credentials.secret_access_key.expose_secret().trim());
    let key = [scope.date(), scope.region, scope.service, "aws4_request"]
        .iter()
        .fold(secret.into_bytes(), |key, part| hmac(&key, part.as_bytes()).to_vec());
    let signature = hex(&hmac(&key, to_sign.as_bytes()));
    let id = &credentials.access_key_id;
    format!("{ALGORITHM} Credential={id}/{}, SignedHeaders={names}, Signature={signature}", scope.path())
}

/// The path of the request is encoded already; AWS signs it encoded once more.
fn canonical_path(url: &Url) -> String {
    url.path().split('/').map(encoded).collect::<Vec<_>>().join("/")
}

fn canonical_query(url: &Url) -> String {
    let mut pairs: Vec<(String, String)> =
        url.query_pairs().map(|(name, value)| (encoded(&name), encoded(&value))).collect();
    pairs.sort();
    pairs.iter().map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join("&")
}

/// Percent-encodes everything but letters, digits, `-`, `_`, `.` and `~`.
pub(super) fn encoded(text: &str) -> String {
    let encode = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => char::from(byte).to_string(),
        other => format!("%{other:02X}"),
    };
    text.bytes().map(encode).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// HMAC-SHA256 (RFC 2104).
fn hmac(key: &[u8], message: &[u8]) -> [u8; 32] {
    const BLOCK: usize = 64;
    let mut padded = [0_u8; BLOCK];
    if key.len() > BLOCK {
        padded[..32].copy_from_slice(&Sha256::digest(key));
    } else {
        padded[..key.len()].copy_from_slice(key);
    }
    let inner = Sha256::new().chain_update(padded.map(|byte| byte ^ 0x36)).chain_update(message).finalize();
    Sha256::new().chain_update(padded.map(|byte| byte ^ 0x5c)).chain_update(inner).finalize().into()
}

#[cfg(test)]
mod tests {
    use secrecy::SecretString;

    use super::*;

    fn signature(method: &str, url: &str, headers: &[(&str, &str)], body: &str, service: &str) -> String {
        let credentials = AwsCredentials {
            access_key_id: "AKIDEXAMPLE".to_owned(),
            secret_access_key: SecretString::from("wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"),
            session_token: None,
            expires: None,
        };
        let at = "20150830T123600Z".to_owned();
        let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        let headers = headers.chain([("x-amz-date".to_owned(), at.clone())]).collect();
        let url = Url::parse(url).unwrap();
        let request = Request { method, url: &url, headers, body: body.as_bytes() };
        let scope = Scope { region: "us-east-1", service, at };
        let value = authorization(&request, &credentials, &scope);
        assert!(value.starts_with("AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/"), "{value}");
        value.rsplit_once('=').unwrap().1.to_owned()
    }

    /// From AWS's published test suite for Signature Version 4.
    #[test]
    fn published_vectors_are_reproduced() {
        let host = ("host", "example.amazonaws.com");
        let root = "https://example.amazonaws.com/";
        assert_eq!(
            signature("GET", root, &[host], "", "service"),
            "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31",
            "get-vanilla"
        );
        assert_eq!(
            signature("POST", root, &[host], "", "service"),
            "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b",
            "post-vanilla"
        );
        let query = "https://example.amazonaws.com/?Param2=value2&Param1=value1";
        assert_eq!(
            signature("GET", query, &[host], "", "service"),
            "b97d918cfa904a5beff61c982a1b6f458b799221646efd99d3219ec94cdf2500",
            "get-vanilla-query-order-key-case"
        );
        let form = ("content-type", "application/x-www-form-urlencoded");
        assert_eq!(
            signature("POST", root, &[host, form], "Param1=value1", "service"),
            "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a",
            "post-x-www-form-urlencoded"
        );
    }

    /// Made with botocore, because the test suite has no path that is encoded twice.
    #[test]
    fn encoded_paths_are_encoded_again() {
        let path = crate::aws::model_path("us.anthropic.claude-sonnet-4-5-20250929-v1:0", "converse-stream");
        assert_eq!(path, "/model/us.anthropic.claude-sonnet-4-5-20250929-v1%3A0/converse-stream");
        let headers = [("host", "bedrock-runtime.us-east-1.amazonaws.com"), ("content-type", "application/json")];
        let url = format!("https://bedrock-runtime.us-east-1.amazonaws.com{path}");
        let expected = "84398646bf3400b6fe124cbb6c76b1ed0ceebcfcb83d3c5a6503a351fa906a98";
        assert_eq!(signature("POST", &url, &headers, r#"{"messages":[]}"#, "bedrock"), expected);
    }

    #[test]
    fn hmac_of_a_long_key_follows_the_standard() {
        let mac = hmac(&[0xaa; 131], b"Test Using Larger Than Block-Size Key - Hash Key First");
        assert_eq!(hex(&mac), "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54", "RFC 4231, case 6");
    }

    #[test]
    fn times_are_formatted_as_aws_signs_them() {
        let at = SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_440_938_160);
        assert_eq!(timestamp(at), "20150830T123600Z");
    }
}
