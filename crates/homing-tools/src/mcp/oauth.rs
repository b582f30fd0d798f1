//! OAuth for remote servers: the user signs in once in a browser, tokens are kept in files that only the user can read, and are
//! renewed when they expire.

use std::{
    future::Future,
    path::{Path, PathBuf},
    pin::Pin,
    time::Duration,
};

use rmcp::transport::auth::{
    AuthError, AuthorizationManager, AuthorizationRequest, AuthorizationSession, CredentialStore, StoredCredentials,
};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
};

use crate::files::contents::sha256;

/// Maximum time for the user to sign in.
const SIGN_IN: Duration = Duration::from_secs(300);

/// The answer to the browser.
const SIGNED_IN: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n\r\nYou are signed in to Homing. \
                         You can close this window.\n";
const NOT_FOUND: &str = "HTTP/1.1 404 Not Found\r\nConnection: close\r\n\r\n";

/// The tokens for remote servers, one file per address.
#[derive(Clone, Debug)]
pub struct OauthTokens {
    folder: PathBuf,
}

impl OauthTokens {
    /// Uses the tokens in this folder.
    pub fn new(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// Returns whether there is a token for the server at `url`.
    pub fn has(&self, url: &str) -> bool {
        self.file(url).is_file()
    }

    /// Deletes the token for the server at `url`, and returns whether there was one.
    pub fn forget(&self, url: &str) -> bool {
        std::fs::remove_file(self.file(url)).is_ok()
    }

    /// Signs the user in to the server at `url`. `show` gets the address that the user must open in a browser on this machine.
    ///
    /// # Errors
    /// Fails if the server offers no OAuth, or if the user does not sign in within five minutes.
    pub async fn sign_in(&self, url: &str, show: impl FnOnce(&str)) -> Result<(), String> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.map_err(|error| error.to_string())?;
        let port = listener.local_addr().map_err(|error| error.to_string())?.port();
        let redirect = format!("http://127.0.0.1:{port}/callback");
        let mut manager = self.manager(url).await.map_err(readable)?;
        let found = Box::pin(manager.resolve_metadata()).await.map_err(readable)?;
        if !found.source.is_discovered() {
            return Err("it offers no OAuth; if it needs a token, set it as a header".to_owned());
        }
        manager.set_metadata(found.metadata);
        let request = AuthorizationRequest::new(redirect.clone()).with_client_name("Homing");
        let session =
            Box::pin(AuthorizationSession::new(manager, request)).await.map_err(|(_, error)| readable(error))?;
        show(session.get_authorization_url());
        let code = async {
            loop {
                let (stream, _) = listener.accept().await.map_err(|error| error.to_string())?;
                if let Some(query) = callback(stream).await {
                    return Ok::<String, String>(query);
                }
            }
        };
        let query =
            tokio::time::timeout(SIGN_IN, code).await.map_err(|_| "you did not sign in within five minutes")??;
        Box::pin(session.handle_callback_url(&format!("{redirect}?{query}"))).await.map_err(readable)?;
        Ok(())
    }

    /// Returns a manager with the token for `url`, which renews it.
    pub(super) async fn authorized(&self, url: &str) -> Result<AuthorizationManager, String> {
        let mut manager = self.manager(url).await.map_err(readable)?;
        Box::pin(manager.initialize_from_store()).await.map_err(readable)?;
        Ok(manager)
    }

    async fn manager(&self, url: &str) -> Result<AuthorizationManager, AuthError> {
        let mut manager = AuthorizationManager::new(url).await?;
        manager.set_credential_store(TokenFile(self.file(url)));
        Ok(manager)
    }

    fn file(&self, url: &str) -> PathBuf {
        self.folder.join(format!("{}.json", &sha256(url.as_bytes())[..32]))
    }
}

fn readable(error: AuthError) -> String {
    error.to_string()
}

/// Reads the browser's request, answers it, and returns the query of a callback.
async fn callback(mut stream: TcpStream) -> Option<String> {
    let mut line = String::new();
    let (reader, mut writer) = stream.split();
    let mut reader = BufReader::new(reader.take(16 << 10));
    tokio::time::timeout(Duration::from_secs(5), reader.read_line(&mut line)).await.ok()?.ok()?;
    let query = line.strip_prefix("GET /callback?").and_then(|rest| rest.split(' ').next()).map(str::to_owned);
    let answer = if query.is_some() { SIGNED_IN } else { NOT_FOUND };
    let _ = writer.write_all(answer.as_bytes()).await;
    let _ = writer.shutdown().await;
    query
}

/// A token in a file that only the user can read.
struct TokenFile(PathBuf);

type Stored<'a, T> = Pin<Box<dyn Future<Output = Result<T, AuthError>> + Send + 'a>>;

/// The methods have the form that `async_trait` gives to those of the trait.
impl CredentialStore for TokenFile {
    fn load<'a, 'b>(&'a self) -> Stored<'b, Option<StoredCredentials>>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(async move { read(&self.0) })
    }

    fn save<'a, 'b>(&'a self, credentials: StoredCredentials) -> Stored<'b, ()>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(async move {
            let bytes = serde_json::to_vec(&credentials).map_err(|error| failed(&error))?;
            crate::trust::save_private(&self.0, &bytes).map_err(|error| failed(&error))
        })
    }

    fn clear<'a, 'b>(&'a self) -> Stored<'b, ()>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(async move {
            let _ = std::fs::remove_file(&self.0);
            Ok(())
        })
    }
}

fn read(path: &Path) -> Result<Option<StoredCredentials>, AuthError> {
    match std::fs::read(path) {
        Ok(bytes) => serde_json::from_slice(&bytes).map(Some).map_err(|error| failed(&error)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed(&error)),
    }
}

fn failed(error: &dyn std::fmt::Display) -> AuthError {
    AuthError::CredentialStoreError(error.to_string())
}
