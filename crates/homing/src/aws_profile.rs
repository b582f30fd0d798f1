//! Profiles of the user's AWS configuration: region and credentials, as the AWS command line stores them.

use std::{
    collections::BTreeMap,
    fs,
    path::PathBuf,
    process::{Command, Stdio},
    sync::{Mutex, PoisonError},
    time::{Duration, Instant, SystemTime},
};

use homing_models::{AwsCredentials, AwsProfile};
use serde::Deserialize;

/// Time for which it is not checked again whether a profile has credentials. Each new run asks for every provider.
const RECENT: Duration = Duration::from_secs(1);

/// One profile in the files of the AWS command line. They are read anew for each request, because other programs renew
/// temporary credentials in them.
#[derive(Debug, Default)]
pub(crate) struct ProfileFiles {
    /// Name of the profile.
    pub(crate) name: String,
    /// The file with credentials, usually `~/.aws/credentials`.
    pub(crate) credentials: PathBuf,
    /// The file with settings, usually `~/.aws/config`.
    pub(crate) config: PathBuf,
    /// The time of the last check for credentials, and its result.
    pub(crate) checked: Mutex<Option<(Instant, bool)>>,
}

/// Settings of a profile that lead to credentials which only other programs can fetch.
const INDIRECT: [&str; 5] =
    ["sso_session", "sso_start_url", "role_arn", "web_identity_token_file", "credential_source"];

impl ProfileFiles {
    /// The settings of the profile; those in the file with credentials win.
    fn settings(&self) -> BTreeMap<String, String> {
        let read = |path: &PathBuf| fs::read_to_string(path).unwrap_or_default();
        let in_config = if self.name == "default" { "default".to_owned() } else { format!("profile {}", self.name) };
        let mut settings = section(&read(&self.config), &in_config);
        settings.extend(section(&read(&self.credentials), &self.name));
        settings
    }
}

impl AwsProfile for ProfileFiles {
    fn region(&self) -> Option<String> {
        self.settings().remove("region")
    }

    fn has_credentials(&self) -> bool {
        let mut checked = self.checked.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, has_credentials)) = checked.filter(|(at, _)| at.elapsed() < RECENT) {
            return has_credentials;
        }
        let settings = self.settings();
        let direct = ["aws_access_key_id", "credential_process"];
        let has_credentials = direct.iter().chain(&INDIRECT).any(|key| settings.contains_key(*key));
        *checked = Some((Instant::now(), has_credentials));
        has_credentials
    }

    fn secrets(&self) -> Vec<String> {
        let mut settings = self.settings();
        ["aws_secret_access_key", "aws_session_token"].iter().filter_map(|key| settings.remove(*key)).collect()
    }

    fn credentials(&self) -> Result<AwsCredentials, String> {
        let name = &self.name;
        let mut settings = self.settings();
        if let Some(id) = settings.remove("aws_access_key_id") {
            let secret = settings.remove("aws_secret_access_key");
            let secret = secret.ok_or_else(|| format!("the AWS profile `{name}` has no aws_secret_access_key"))?;
            let session_token = settings.remove("aws_session_token").map(Into::into);
            return Ok(AwsCredentials {
                access_key_id: id,
                secret_access_key: secret.into(),
                session_token,
                expires: None,
            });
        }
        if let Some(command) = settings.get("credential_process") {
            return from_process(command)
                .map_err(|why| format!("credential_process of the AWS profile `{name}`: {why}"));
        }
        if let Some(key) = INDIRECT.iter().find(|key| settings.contains_key(**key)) {
            return Err(format!(
                "the AWS profile `{name}` gets its credentials by `{key}`, which is not supported here: set the variables \
                 that `aws configure export-credentials` prints, or name it as credential_process"
            ));
        }
        Err(format!(
            "no AWS credentials: the profile `{name}` has none in {} or {}",
            self.credentials.display(),
            self.config.display()
        ))
    }
}

/// The settings of one section of an INI file. Indented lines belong to nested settings, which are not used here.
fn section(text: &str, name: &str) -> BTreeMap<String, String> {
    let mut settings = BTreeMap::new();
    let mut is_inside = false;
    for line in text.lines() {
        let trimmed = line.trim();
        if let Some(header) = trimmed.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            is_inside = header.0.split_whitespace().eq(name.split_whitespace());
        } else if is_inside
            && !line.starts_with([' ', '\t', '#', ';'])
            && let Some((key, value)) = trimmed.split_once('=')
            && !value.trim().is_empty()
        {
            settings.insert(key.trim().to_lowercase(), value.trim().to_owned());
        }
    }
    settings
}

/// The output of a `credential_process`.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct ProcessOutput {
    access_key_id: String,
    secret_access_key: String,
    session_token: Option<String>,
    expiration: Option<jiff::Timestamp>,
}

fn from_process(command: &str) -> Result<AwsCredentials, String> {
    let mut shell = Command::new("/bin/sh");
    let output = shell.args(["-c", command]).stdin(Stdio::null()).output().map_err(|error| error.to_string())?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        let said = said.trim().lines().next_back().unwrap_or("no message");
        return Err(format!("the command failed ({}): {said}", output.status));
    }
    // The message of a parser may quote the output, which contains the secret.
    let found: ProcessOutput = serde_json::from_slice(&output.stdout)
        .map_err(|_| "its output is not JSON with AccessKeyId and SecretAccessKey".to_owned())?;
    Ok(AwsCredentials {
        access_key_id: found.access_key_id,
        secret_access_key: found.secret_access_key.into(),
        session_token: found.session_token.filter(|token| !token.is_empty()).map(Into::into),
        expires: found.expiration.map(SystemTime::from),
    })
}

#[cfg(test)]
mod tests {
    use secrecy::ExposeSecret;

    use super::*;

    const CREDENTIALS: &str = "[default]\naws_access_key_id = AKID\naws_secret_access_key=secret=with/equals\n\n\
                               # comment\n[temp]\naws_access_key_id=ASIA\naws_secret_access_key=s2\naws_session_token=t2\n";
    const CONFIG: &str = "[default]\nregion = eu-west-1\ns3 =\n  region = nowhere\n\n[profile temp]\nregion=us-west-2\n\n\
                          [profile tool]\ncredential_process = echo '{\"Version\": 1, \"AccessKeyId\": \"ASIAX\", \
                          \"SecretAccessKey\": \"sx\", \"SessionToken\": \"tx\", \"Expiration\": \"2030-01-01T00:00:00Z\"}'\n\n\
                          [profile broken]\ncredential_process = echo oops >&2; exit 3\n\n\
                          [profile sso]\nsso_session = corp\nregion = us-east-1\n";

    fn profile(name: &str, folder: &std::path::Path) -> ProfileFiles {
        let (credentials, config) = (folder.join("credentials"), folder.join("config"));
        fs::write(&credentials, CREDENTIALS).unwrap();
        fs::write(&config, CONFIG).unwrap();
        ProfileFiles { name: name.to_owned(), credentials, config, ..ProfileFiles::default() }
    }

    #[test]
    fn profiles_are_read_as_the_aws_command_line_stores_them() {
        let folder = tempfile::tempdir().unwrap();
        let of = |name: &str| profile(name, folder.path());
        assert_eq!(of("default").region().as_deref(), Some("eu-west-1"));
        let found = of("default").credentials().unwrap();
        assert_eq!(
            (found.access_key_id.as_str(), found.secret_access_key.expose_secret()),
            ("AKID", "secret=with/equals")
        );
        assert!(found.session_token.is_none() && found.expires.is_none());
        let found = of("temp").credentials().unwrap();
        assert_eq!(found.session_token.unwrap().expose_secret(), "t2");
        assert_eq!(of("temp").secrets(), ["s2", "t2"]);
        let found = of("tool").credentials().unwrap();
        assert_eq!((found.access_key_id.as_str(), found.expires.is_some()), ("ASIAX", true));
        assert!(of("tool").has_credentials() && !of("absent").has_credentials());
    }

    #[test]
    fn unusable_profiles_say_why() {
        let folder = tempfile::tempdir().unwrap();
        let why = |name: &str| profile(name, folder.path()).credentials().unwrap_err();
        assert!(why("sso").contains("`sso_session`") && why("sso").contains("`aws configure export-credentials`"));
        assert!(why("broken").contains("the command failed (exit status: 3): oops"), "{}", why("broken"));
        assert!(why("absent").starts_with("no AWS credentials: the profile `absent` has none in"), "{}", why("absent"));
    }
}
