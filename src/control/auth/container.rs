//! The keys of a container's role, from the agent that its variables name.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use aws_credential_types::credential_feature::AwsCredentialFeature;
use aws_credential_types::provider::error::CredentialsError;
use aws_credential_types::provider::{self, ProvideCredentials, SharedCredentialsProvider, future};
use aws_smithy_types::body::SdkBody;
use http::{HeaderValue, Request, Uri, header};

use super::chain_http::ChainHttp;
use super::fields::{EXPIRATION, Fields};
use super::roles::Nothing;
use super::tokens::read_token;
use crate::control::dns::resolver::Resolver;
use crate::control::settings::{Found, Settings};
use crate::error::{Error, ErrorKind, Result};

/// Variables with the agent's URL: a path at [`AGENT`], or a whole URL.
pub(super) const AGENT_VARIABLES: [&str; 2] =
    ["AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_CONTAINER_CREDENTIALS_FULL_URI"];
/// Variables with the token for the agent: its file, or the token itself.
const TOKEN_FILE: &str = "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE";
const TOKEN: &str = "AWS_CONTAINER_AUTHORIZATION_TOKEN";

/// The agent of ECS.
const AGENT: &str = "http://169.254.170.2";
/// Addresses that get requests without TLS besides this machine: the agents of ECS and of EKS
/// (<https://docs.aws.amazon.com/sdkref/latest/guide/feature-container-credentials.html>).
const AGENTS: [IpAddr; 3] = [
    IpAddr::V4(Ipv4Addr::new(169, 254, 170, 2)),
    IpAddr::V4(Ipv4Addr::new(169, 254, 170, 23)),
    IpAddr::V6(Ipv6Addr::new(0xfd00, 0x0ec2, 0, 0, 0, 0, 0, 0x23)),
];

/// An agent.
#[derive(Debug)]
struct Container {
    /// Its URL, and the variable that has it.
    url: String,
    from: &'static str,
    token_file: Option<Found>,
    token: Option<Found>,
    http: ChainHttp,
}

/// The agent that the environment names, if it names one.
pub(super) fn of_container(settings: &Settings, http: &ChainHttp) -> SharedCredentialsProvider {
    let [relative, full] = AGENT_VARIABLES.map(|name| settings.variable(name));
    let (url, from) = match (relative, full) {
        (Some(path), _) => {
            (format!("{AGENT}/{}", path.trim_start_matches('/')), AGENT_VARIABLES[0])
        }
        (None, Some(url)) => (url, AGENT_VARIABLES[1]),
        (None, None) => return SharedCredentialsProvider::new(Nothing),
    };
    let [token_file, token] = [TOKEN_FILE, TOKEN].map(|name| settings.in_variables(&[name]));
    let http = http.by(from);
    SharedCredentialsProvider::new(Container { url, from, token_file, token, http })
}

impl ProvideCredentials for Container {
    fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        future::ProvideCredentials::new(self.ask())
    }
}

impl Container {
    async fn ask(&self) -> provider::Result {
        let (url, addresses) =
            self.place().await.map_err(CredentialsError::invalid_configuration)?;
        let token = self.token().await.map_err(CredentialsError::invalid_configuration)?;
        let request = || {
            let mut request = Request::get(&url).header(header::ACCEPT, "application/json");
            if let Some(token) = &token {
                request = request.header(header::AUTHORIZATION, token);
            }
            request.body(SdkBody::empty())
        };
        let answer = self.http.send(request, addresses.as_deref()).await;
        let (status, body) = answer.map_err(CredentialsError::provider_error)?;
        let fields = Fields::parse(&body, "has");
        if !(200..300).contains(&status) {
            let said = fields.map(|fields| fields.said(["code", "message"]));
            return Err(CredentialsError::provider_error(said.unwrap_or_default()));
        }
        let keys = fields.ok_or_else(|| "is no JSON object".to_owned());
        let keys = keys.and_then(|fields| fields.keys("Token", EXPIRATION, "EcsContainer"));
        let mut keys =
            keys.map_err(|why| CredentialsError::provider_error(self.http.without_keys(&why)))?;
        keys.set_property(vec![AwsCredentialFeature::CredentialsHttp]);
        Ok(keys)
    }

    /// Its URL, and without TLS the addresses that its host has, if secrets may be sent there.
    async fn place(&self) -> Result<(Uri, Option<Vec<IpAddr>>)> {
        let refuse = |why: &str| {
            let error = Error::new(ErrorKind::Access, format!("{}: {why}", self.from));
            error.advise(format!("check {}", self.from))
        };
        let url: Uri = self.url.parse().map_err(|_| refuse("it is no URL"))?;
        match url.scheme_str() {
            Some("https") => return Ok((url, None)),
            Some("http") => {}
            _ => return Err(refuse("it begins with neither https:// nor http://")),
        }
        let host = url.host().unwrap_or_default();
        let name = host.trim_start_matches('[').trim_end_matches(']');
        let found = Resolver::System.look_up(name).await;
        let found = found.map_err(|not_found| refuse(&not_found.why.to_string()))?;
        let is_known = |address: &IpAddr| {
            let address = address.to_canonical();
            address.is_loopback() || AGENTS.contains(&address)
        };
        match found.addresses.iter().all(is_known) {
            true => Ok((url, Some(found.addresses))),
            false => Err(refuse("with http:// it must be this machine's, or a container's agent")),
        }
    }

    /// A file is read each time: its token is replaced before it ends.
    async fn token(&self) -> Result<Option<HeaderValue>> {
        let (token, named) = match (&self.token_file, &self.token) {
            (Some(file), _) => (read_token(file).await?, file.named()),
            (None, Some(Found { value, from })) => (value.clone(), from.clone()),
            (None, None) => return Ok(None),
        };
        let mut token = HeaderValue::from_str(&token).map_err(|_| {
            Error::new(ErrorKind::Access, format!("{named}: it is no token"))
                .advise("expected one line of printable characters")
        })?;
        token.set_sensitive(true);
        Ok(Some(token))
    }
}
