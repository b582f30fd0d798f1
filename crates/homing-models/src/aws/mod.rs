//! Access to Amazon Bedrock: credentials, signatures and the framing of its streams.

pub(crate) mod event_stream;
mod sigv4;

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, SystemTime},
};

use crate::url::Url;
use homing_core::model::ModelError;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use secrecy::{ExposeSecret, SecretString};

/// Name of the service in signatures.
const SERVICE: &str = "bedrock";

/// Time for a profile to supply credentials.
const FETCH_WAIT: Duration = Duration::from_secs(60);

/// Time before their expiry at which credentials are renewed.
const RENEWAL: Duration = Duration::from_secs(300);

/// Credentials that sign requests to AWS.
#[derive(Clone)]
pub struct AwsCredentials {
    /// ID of the access key.
    pub access_key_id: String,
    /// The secret access key.
    pub secret_access_key: SecretString,
    /// Token of a temporary session.
    pub session_token: Option<SecretString>,
    /// Time at which they expire, if they do.
    pub expires: Option<SystemTime>,
}

impl fmt::Debug for AwsCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AwsCredentials").field("access_key_id", &self.access_key_id).finish_non_exhaustive()
    }
}

/// A profile of the user's AWS configuration, which the host reads.
pub trait AwsProfile: Send + Sync {
    /// Returns the region of the profile.
    fn region(&self) -> Option<String>;

    /// Returns whether the profile has credentials, without fetching them.
    fn has_credentials(&self) -> bool;

    /// Returns the secrets that the profile holds, so that they can be kept out of output.
    fn secrets(&self) -> Vec<String>;

    /// Returns the credentials of the profile. May block, because a profile may name a command that supplies them.
    ///
    /// # Errors
    /// Fails with a message for the user if the profile has no usable credentials.
    fn credentials(&self) -> Result<AwsCredentials, String>;
}

/// Looks up a variable of the environment.
pub(crate) type Lookup = Arc<dyn Fn(&str) -> Option<SecretString> + Send + Sync>;

/// The source of credentials: variables, or else a profile.
#[derive(Clone)]
pub(crate) struct CredentialSource {
    pub(crate) lookup: Lookup,
    pub(crate) profile: Option<Arc<dyn AwsProfile>>,
}

impl CredentialSource {
    fn variable(&self, name: &str) -> Option<SecretString> {
        (self.lookup)(name).filter(|value| !value.expose_secret().trim().is_empty())
    }

    /// Returns the region of requests, if one is set.
    pub(crate) fn region(&self) -> Option<String> {
        let set = ["AWS_REGION", "AWS_DEFAULT_REGION"].iter().find_map(|name| self.variable(name));
        let set = set.map(|region| region.expose_secret().trim().to_owned());
        set.or_else(|| self.profile.as_ref()?.region())
    }

    /// Returns why requests can be signed, as the end of a sentence; `None` if they cannot.
    pub(crate) fn why_usable(&self) -> Option<&'static str> {
        if self.variable("AWS_ACCESS_KEY_ID").is_some() {
            return Some("AWS_ACCESS_KEY_ID is set");
        }
        self.profile.as_ref().filter(|profile| profile.has_credentials()).map(|_| "your AWS profile has credentials")
    }

    /// Returns the values that must never be shown.
    pub(crate) fn secrets(&self) -> Vec<String> {
        let names = ["AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"];
        let set = names.iter().filter_map(|name| self.variable(name)).map(|value| value.expose_secret().to_owned());
        set.chain(self.profile.iter().flat_map(|profile| profile.secrets())).collect()
    }

    /// Credentials from the variables. They belong together, so none of them is taken from elsewhere.
    fn in_variables(&self) -> Option<Result<AwsCredentials, String>> {
        let access_key_id = self.variable("AWS_ACCESS_KEY_ID")?.expose_secret().trim().to_owned();
        Some(match self.variable("AWS_SECRET_ACCESS_KEY") {
            None => Err("AWS_ACCESS_KEY_ID is set, but AWS_SECRET_ACCESS_KEY is not".to_owned()),
            Some(secret) => Ok(AwsCredentials {
                access_key_id,
                secret_access_key: secret,
                session_token: self.variable("AWS_SESSION_TOKEN"),
                expires: None,
            }),
        })
    }

    fn credentials(&self) -> Result<AwsCredentials, String> {
        if let Some(found) = self.in_variables() {
            return found;
        }
        let none = || "no AWS credentials: set AWS_BEARER_TOKEN_BEDROCK, AWS_ACCESS_KEY_ID or AWS_PROFILE".to_owned();
        self.profile.as_ref().ok_or_else(none)?.credentials()
    }
}

/// Signs the requests of a model.
pub(crate) struct AwsSigner {
    source: CredentialSource,
    region: String,
    /// Credentials that expire are kept until shortly before.
    kept: Mutex<Option<AwsCredentials>>,
}

impl AwsSigner {
    /// Creates a signer for requests to `region`.
    pub(crate) fn new(source: CredentialSource, region: String) -> Self {
        Self { source, region, kept: Mutex::default() }
    }

    /// Adds the headers of the signature.
    pub(crate) async fn sign(&self, url: &Url, headers: &mut HeaderMap, body: &[u8]) -> Result<(), ModelError> {
        let credentials = self.credentials().await.map_err(|reason| ModelError::Unauthorized { reason })?;
        let signed = self.signature(&credentials, url, headers, body, SystemTime::now());
        signed.map_err(|_| ModelError::Unauthorized {
            reason: "the AWS credentials contain characters that a header cannot carry".to_owned(),
        })
    }

    fn signature(
        &self,
        credentials: &AwsCredentials,
        url: &Url,
        headers: &mut HeaderMap,
        body: &[u8],
        now: SystemTime,
    ) -> Result<(), http::header::InvalidHeaderValue> {
        let scope = sigv4::Scope { region: &self.region, service: SERVICE, at: sigv4::timestamp(now) };
        headers.insert(HeaderName::from_static("x-amz-date"), HeaderValue::try_from(&scope.at)?);
        if let Some(token) = &credentials.session_token {
            let mut token = HeaderValue::try_from(token.expose_secret().trim())?;
            token.set_sensitive(true);
            headers.insert(HeaderName::from_static("x-amz-security-token"), token);
        }
        let text = |name: &HeaderName| headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let mut signed = vec![("host".to_owned(), host(url))];
        for name in
            [&CONTENT_TYPE, &HeaderName::from_static("x-amz-date"), &HeaderName::from_static("x-amz-security-token")]
        {
            signed.extend(text(name).map(|value| (name.as_str().to_owned(), value)));
        }
        let request = sigv4::Request { method: "POST", url, headers: signed, body };
        let mut value = HeaderValue::try_from(sigv4::authorization(&request, credentials, &scope))?;
        value.set_sensitive(true);
        headers.insert(AUTHORIZATION, value);
        Ok(())
    }

    async fn credentials(&self) -> Result<AwsCredentials, String> {
        let kept = self.kept.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let is_fresh = |expires: SystemTime| expires > SystemTime::now() + RENEWAL;
        if let Some(kept) = kept.filter(|kept| kept.expires.is_some_and(is_fresh)) {
            return Ok(kept);
        }
        let source = self.source.clone();
        let fetching = tokio::task::spawn_blocking(move || source.credentials());
        let late = |_| format!("the AWS profile supplied no credentials within {} s", FETCH_WAIT.as_secs());
        let fetched = tokio::time::timeout(FETCH_WAIT, fetching).await.map_err(late)?;
        let credentials = fetched.map_err(|error| format!("cannot read the AWS credentials: {error}"))??;
        *self.kept.lock().unwrap_or_else(PoisonError::into_inner) = Some(credentials.clone());
        Ok(credentials)
    }
}

/// The `Host` header of requests to `url`.
fn host(url: &Url) -> String {
    let host = url.host();
    url.port().map_or_else(|| host.to_owned(), |port| format!("{host}:{port}"))
}

/// The base URL of Bedrock in `region`.
pub(crate) fn base_url(region: &str) -> String {
    let domain = if region.starts_with("cn-") { "amazonaws.com.cn" } else { "amazonaws.com" };
    format!("https://bedrock-runtime.{region}.{domain}")
}

/// The region in an address of Bedrock, such as `bedrock-runtime.us-east-1.amazonaws.com`.
pub(crate) fn region_in(url: &str) -> Option<String> {
    let host = Url::parse(url.trim()).ok()?.host().to_owned();
    let (region, rest) =
        host.strip_prefix("bedrock-runtime")?.trim_start_matches("-fips").strip_prefix('.')?.split_once('.')?;
    rest.starts_with("amazonaws.com").then(|| region.to_owned())
}

/// The path below the base URL for `model`, which may be an ID or the address (ARN) of an inference profile.
pub(crate) fn model_path(model: &str, operation: &str) -> String {
    format!("/model/{}/{operation}", sigv4::encoded(model))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn region_is_read_from_the_address() {
        assert_eq!(region_in("https://bedrock-runtime.eu-west-1.amazonaws.com").as_deref(), Some("eu-west-1"));
        assert_eq!(
            region_in("https://bedrock-runtime-fips.us-gov-west-1.amazonaws.com/").as_deref(),
            Some("us-gov-west-1")
        );
        assert_eq!(region_in("http://127.0.0.1:8080"), None);
        assert_eq!(region_in(&base_url("cn-north-1")).as_deref(), Some("cn-north-1"));
    }

    #[test]
    fn variables_are_not_mixed_with_a_profile() {
        let lookup = |name: &str| (name == "AWS_ACCESS_KEY_ID").then(|| SecretString::from("AKID"));
        let source = CredentialSource { lookup: Arc::new(lookup), profile: None };
        assert!(source.credentials().unwrap_err().contains("AWS_SECRET_ACCESS_KEY is not"));
        let source = CredentialSource { lookup: Arc::new(|_| None), profile: None };
        assert!(source.credentials().unwrap_err().starts_with("no AWS credentials"));
    }
}
