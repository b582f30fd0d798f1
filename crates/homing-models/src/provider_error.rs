//! The reasons why a provider has no model of a name.

/// The reason why [`Providers::model`](crate::Providers::model) has no model of a name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoModelError {
    /// The provider is not in the table.
    #[error("unknown provider `{provider}` (known: {known})")]
    UnknownProvider {
        /// Name of the provider as written.
        provider: String,
        /// Names of the known providers.
        known: String,
    },
    /// The name is not of the form `provider/model`.
    #[error("`{0}` has no provider: write provider/model, such as anthropic/{0}")]
    NoProvider(String),
    /// The provider needs an API key and none is set.
    #[error("no API key for {provider}: set {vars}")]
    NoKey {
        /// Name of the provider.
        provider: String,
        /// Environment variables that may hold the key.
        vars: String,
    },
    /// The provider's row is not usable.
    #[error("provider `{provider}`: {why}")]
    BadRow {
        /// Name of the provider.
        provider: String,
        /// The reason.
        why: RowError,
    },
}

/// The reason why a row of the provider table is not usable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RowError {
    /// The base URL does not begin with `http://` or `https://`.
    #[error("`{0}` is not an HTTP address")]
    NotHttp(String),
    /// The base URL cannot be parsed.
    #[error("`{url}` is not a valid address: {reason}")]
    BadUrl {
        /// The URL.
        url: String,
        /// The parser's message.
        reason: String,
    },
    /// The name of a configured header is not valid.
    #[error("`{0}` is not a valid header name")]
    BadHeaderName(String),
    /// The value of a configured header is not valid.
    #[error("the value of header `{0}` is not valid")]
    BadHeaderValue(String),
    /// No AWS region is known.
    #[error("no region is set: set AWS_REGION, or `region` in your AWS profile")]
    NoRegion,
    /// The API key cannot be sent in a header.
    #[error("the API key contains characters that a header cannot carry")]
    BadKey,
    /// The `genai` crate has no adapter of the provider's name.
    #[error("the `genai` wire has no provider of this name: set `wire` and `base_url`")]
    UnknownToGenai,
    /// The crate was built without the feature `genai`.
    #[error("this build has no support for the `genai` wire")]
    NoGenai,
}
