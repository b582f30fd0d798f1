//! TLS from a certificate and a key in PEM files.

use std::{path::PathBuf, sync::Arc};

use tokio_rustls::{
    TlsAcceptor,
    rustls::{
        ServerConfig,
        crypto::aws_lc_rs,
        pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    },
};

/// The files of a certificate chain and its private key, in PEM form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate, followed by those that signed it.
    pub certificate: PathBuf,
    /// The private key.
    pub key: PathBuf,
}

/// The reason why TLS cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file cannot be read, or does not contain what it should.
    #[error("cannot read {0}: {1}")]
    File(PathBuf, String),
    /// The certificate and the key cannot be used together.
    #[error("cannot use the certificate {0}: {1}")]
    Unusable(PathBuf, String),
}

impl TlsFiles {
    /// Reads the files.
    ///
    /// # Errors
    /// Fails if a file cannot be read, or if the key does not belong to the certificate.
    pub fn acceptor(&self) -> Result<TlsAcceptor, TlsError> {
        let unreadable = |path: &PathBuf, why: String| TlsError::File(path.clone(), why);
        let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_file_iter(&self.certificate)
            .and_then(Iterator::collect)
            .map_err(|error| unreadable(&self.certificate, error.to_string()))?;
        if chain.is_empty() {
            return Err(unreadable(&self.certificate, "it contains no certificate".to_owned()));
        }
        let key = PrivateKeyDer::from_pem_file(&self.key).map_err(|error| unreadable(&self.key, error.to_string()))?;
        let unusable =
            |error: tokio_rustls::rustls::Error| TlsError::Unusable(self.certificate.clone(), error.to_string());
        let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(unusable)?
            .with_no_client_auth()
            .with_single_cert(chain, key)
            .map_err(unusable)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(TlsAcceptor::from(Arc::new(config)))
    }
}
