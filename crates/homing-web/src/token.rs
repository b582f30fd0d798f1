//! The token of the server: created once, in a file that only its owner can read.

use std::{
    fs::{self, OpenOptions},
    io::{self, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::{Path, PathBuf},
};

use homing_http::fresh_token;
use sha2::{Digest, Sha256};

/// Minimum number of characters of a token that the user wrote into the file.
const MIN_LENGTH: usize = 20;

/// The file of a token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenFile(PathBuf);

/// The reason why there is no token.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// The file cannot be read or written.
    #[error("cannot use the token file {0}: {1}")]
    Io(PathBuf, io::Error),
    /// Other users can read the file.
    #[error("other users can read the token file {0} (mode {1:o})")]
    Exposed(PathBuf, u32),
    /// The file contains no token.
    #[error("the token file {0} does not contain a token of at least {MIN_LENGTH} characters")]
    NotAToken(PathBuf),
}

impl TokenFile {
    /// Names the file. Nothing is read yet.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// Returns the path.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Reads the token. If there is no file, it is created with a new token, readable by its owner only.
    ///
    /// # Errors
    /// Fails if the file cannot be read or created, if other users can read it, or if it contains no token.
    pub fn read_or_create(&self) -> Result<String, TokenError> {
        match self.read() {
            Err(TokenError::Io(_, error)) if error.kind() == io::ErrorKind::NotFound => match self.write_new(&self.0) {
                // Another process was faster.
                Err(TokenError::Io(_, error)) if error.kind() == io::ErrorKind::AlreadyExists => self.read(),
                created => created,
            },
            read => read,
        }
    }

    /// Replaces the token by a new one. Servers that use the file accept only the new one from then on.
    ///
    /// # Errors
    /// Fails if the file cannot be written.
    pub fn rotate(&self) -> Result<String, TokenError> {
        let mut beside = self.0.clone().into_os_string();
        beside.push(format!(".{}", std::process::id()));
        let beside = PathBuf::from(beside);
        let token = self.write_new(&beside)?;
        fs::rename(&beside, &self.0).map_err(|error| self.io(error))?;
        Ok(token)
    }

    /// Reads the token.
    pub(crate) fn read(&self) -> Result<String, TokenError> {
        let metadata = fs::metadata(&self.0).map_err(|error| self.io(error))?;
        if metadata.mode() & 0o077 != 0 {
            return Err(TokenError::Exposed(self.0.clone(), metadata.mode() & 0o777));
        }
        let text = fs::read_to_string(&self.0).map_err(|error| self.io(error))?;
        let token = text.trim();
        let is_token = token.len() >= MIN_LENGTH && token.bytes().all(|byte| byte.is_ascii_graphic());
        if is_token { Ok(token.to_owned()) } else { Err(TokenError::NotAToken(self.0.clone())) }
    }

    fn write_new(&self, path: &Path) -> Result<String, TokenError> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder).map_err(|error| self.io(error))?;
        }
        let token = fresh_token();
        let mut file =
            OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(|error| self.io(error))?;
        writeln!(file, "{token}").and_then(|()| file.sync_all()).map_err(|error| self.io(error))?;
        Ok(token)
    }

    fn io(&self, error: io::Error) -> TokenError {
        TokenError::Io(self.0.clone(), error)
    }
}

/// Returns the value of the cookie for a token. Browsers send cookies to all ports of a host, so another server on the same
/// machine may see it; the token itself, which programs use, cannot be computed from it.
pub(crate) fn cookie_value(token: &str) -> String {
    let mut hash = Sha256::new();
    hash.update("homing cookie ");
    hash.update(token);
    format!("{:x}", hash.finalize())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn token_is_created_once_private_and_rotated() {
        let folder = std::env::temp_dir().join(format!("homing-token-{}", uuid::Uuid::new_v4()));
        let file = TokenFile::new(folder.join("below/token"));
        let token = file.read_or_create().unwrap();
        assert_eq!(file.read_or_create().unwrap(), token);
        assert_eq!(fs::metadata(file.path()).unwrap().mode() & 0o777, 0o600);
        let rotated = file.rotate().unwrap();
        assert!(rotated != token && file.read().unwrap() == rotated);
        fs::set_permissions(file.path(), fs::Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(file.read_or_create(), Err(TokenError::Exposed(_, 0o644))));
        fs::set_permissions(file.path(), fs::Permissions::from_mode(0o600)).unwrap();
        fs::write(file.path(), "short\n").unwrap();
        assert!(matches!(file.read_or_create(), Err(TokenError::NotAToken(_))));
        fs::remove_dir_all(folder).unwrap();
    }
}
