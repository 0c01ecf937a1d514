//! Options about the server and the credentials.

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::NonEmptyStringValueParser;
use clap::{Args, ValueEnum, ValueHint};

use super::parse_number;
use super::times::{help_retry_for, help_timeout, parse_retry_for, parse_timeout, typed_time};
use crate::cli::usage;
use crate::limits;
use crate::s3::uri::S3Uri;

/// Position of the bucket's name in requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum AddressingStyle {
    /// path style for IP addresses, custom endpoints and names with dots; otherwise virtual
    Auto,
    /// In the path.
    #[value(help = "path style: https://host/bucket/key")]
    Path,
    /// In the host name.
    #[value(help = "virtual-hosted style: https://bucket.host/key")]
    Virtual,
}

/// Whose keys read the buckets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum AccessGrantsMode {
    /// those of access grants; a source without one is an error
    Only,
    /// those of access grants, or the credentials themselves where none can be had
    Fallback,
}

/// Server and credentials.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
#[command(next_help_heading = "Server")]
pub struct ServiceArgs {
    /// S3-compatible server: http://HOST:PORT or https://HOST
    /// [default: $AWS_ENDPOINT_URL_S3, $AWS_ENDPOINT_URL, the profile's, or AWS]
    #[arg(long, value_name = "URL", value_parser = NonEmptyStringValueParser::new())]
    pub endpoint_url: Option<String>,
    /// region of the buckets
    /// [default: $AWS_REGION, $AWS_DEFAULT_REGION, the profile's, or us-east-1]
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub region: Option<String>,
    /// profile of the AWS configuration files
    /// [default: $AWS_PROFILE, or default]
    #[arg(long, value_name = "NAME", value_parser = NonEmptyStringValueParser::new())]
    pub profile: Option<String>,
    /// send requests without credentials, for public buckets
    #[arg(long, conflicts_with = "profile")]
    pub no_sign_request: bool,
    /// read each source with temporary credentials of S3 Access Grants
    /// [MODE, if omitted: only]
    #[arg(
        long,
        value_name = "MODE",
        value_enum,
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "only",
        conflicts_with = "no_sign_request"
    )]
    pub access_grants: Option<AccessGrantsMode>,
    /// file of CA certificates (PEM) to trust instead of the system's
    /// [default: $AWS_CA_BUNDLE, the profile's ca_bundle, or the system's certificates]
    #[arg(
        long,
        value_name = "FILE",
        value_hint = ValueHint::FilePath,
        conflicts_with = "no_verify_ssl"
    )]
    pub ca_bundle: Option<PathBuf>,
    /// do not verify TLS certificates; anyone on the network path can then read and change the data
    #[arg(long)]
    pub no_verify_ssl: bool,
    /// where requests put the bucket's name [default: the profile's s3.addressing_style, or auto]
    #[arg(long, value_name = "STYLE", value_enum)]
    pub addressing_style: Option<AddressingStyle>,
    /// use AWS endpoints that have IPv4 and IPv6 addresses
    #[arg(long)]
    pub use_dualstack_endpoint: bool,
    /// use AWS endpoints with FIPS 140 validated cryptography
    #[arg(long)]
    pub use_fips_endpoint: bool,
    /// pay for requests to requester-pays buckets; WHO is requester
    #[arg(
        long,
        value_name = "WHO",
        value_parser = ["requester"],
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "requester",
        hide_possible_values = true
    )]
    pub request_payer: Option<String>,
    /// file with the SSE-C key: 32 bytes, or the same in base64; https only
    /// [default: $INRUSH_SSE_C_KEY as base64]
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub sse_c_key_file: Option<PathBuf>,
    /// Network interfaces; if empty, by the system's routing table.
    #[arg(
        long,
        value_name = "NAME",
        value_delimiter = ',',
        value_parser = parse_interface,
        help = "connect over these network interfaces, such as eth0,eth1: workers are divided \
                among them, listings use the first"
    )]
    pub interface: Vec<String>,
    /// Time for which an endpoint that does not answer is retried; `None` for the default.
    #[arg(long, value_name = "TIME", value_parser = parse_retry_for, help = help_retry_for())]
    pub retry_for: Option<Duration>,
    /// Timeout of a connection attempt; `None` for the defaults.
    #[arg(
        long,
        value_name = "TIME",
        value_parser = parse_timeout,
        help = help_timeout("that has no connection after", limits::CONNECT_TIMEOUT_US)
    )]
    pub connect_timeout: Option<Duration>,
    /// Timeout of an answer's first and further bytes; `None` for the defaults.
    #[arg(
        long,
        value_name = "TIME",
        value_parser = parse_timeout,
        help = help_timeout("that receives nothing for", limits::STALL_TIMEOUT_US)
    )]
    pub read_timeout: Option<Duration>,
    /// Most simultaneous LIST requests.
    #[arg(
        long,
        value_name = "N",
        value_parser = parse_list_requests,
        help = help_list_requests()
    )]
    pub list_requests: Option<usize>,
    /// download this version; takes a single source that is one object
    #[arg(long, value_name = "ID", help_heading = "Selection")]
    pub version_id: Option<String>,
}

impl ServiceArgs {
    /// The options as they would be typed.
    #[must_use]
    pub fn to_words(&self) -> Vec<String> {
        let path = |path: &PathBuf| path.display().to_string();
        let style = self.addressing_style.and_then(|style| style.to_possible_value());
        let values = [
            ("--endpoint-url", self.endpoint_url.clone()),
            ("--region", self.region.clone()),
            ("--profile", self.profile.clone()),
            ("--ca-bundle", self.ca_bundle.as_ref().map(path)),
            ("--addressing-style", style.map(|style| style.get_name().to_owned())),
            ("--sse-c-key-file", self.sse_c_key_file.as_ref().map(path)),
            ("--retry-for", self.retry_for.map(typed_time)),
            ("--connect-timeout", self.connect_timeout.map(typed_time)),
            ("--read-timeout", self.read_timeout.map(typed_time)),
            ("--list-requests", self.list_requests.map(|count| count.to_string())),
            ("--version-id", self.version_id.clone()),
        ];
        let flags = [
            ("--no-sign-request", self.no_sign_request),
            ("--no-verify-ssl", self.no_verify_ssl),
            ("--use-dualstack-endpoint", self.use_dualstack_endpoint),
            ("--use-fips-endpoint", self.use_fips_endpoint),
            ("--request-payer", self.request_payer.is_some()),
            ("--access-grants", self.access_grants == Some(AccessGrantsMode::Only)),
            ("--access-grants=fallback", self.access_grants == Some(AccessGrantsMode::Fallback)),
        ];
        let values = values.into_iter().filter_map(|(name, value)| Some([name.to_owned(), value?]));
        let interfaces = self.interface.iter().map(|name| ["--interface".to_owned(), name.clone()]);
        let flags = flags.into_iter().filter(|(_, is_on)| *is_on);
        let values = values.chain(interfaces);
        values.flatten().chain(flags.map(|(name, _)| name.to_owned())).collect()
    }

    /// The sources with the requested version; a source must then be one object.
    pub(in crate::cli) fn with_version<'a>(
        &self,
        mut sources: impl Iterator<Item = &'a mut S3Uri>,
    ) -> Result<(), clap::Error> {
        let Some(version) = &self.version_id else { return Ok(()) };
        let (Some(source), None) = (sources.next(), sources.next()) else {
            return Err(usage("--version-id takes a single source that is one object"));
        };
        *source =
            source.clone().with_version(version).map_err(|error| usage(&error.to_string()))?;
        Ok(())
    }
}

/// Parses an interface name as Linux allows it: up to 15 bytes, without `/` and spaces.
fn parse_interface(text: &str) -> Result<String, String> {
    let fits = (1..=limits::INTERFACE_NAME_BYTES_MAX).contains(&text.len());
    if !fits || text.contains(|c: char| c == '/' || c.is_whitespace()) {
        return Err("expected the name of a network interface, such as eth0".to_owned());
    }
    Ok(text.to_owned())
}

fn help_list_requests() -> String {
    format!(
        "parallel listing requests, 1 to {}; 1 lists page by page [default: {}]",
        limits::LIST_REQUESTS_MAX,
        limits::LIST_REQUESTS_DEFAULT
    )
}

fn parse_list_requests(text: &str) -> Result<usize, String> {
    parse_number(text, limits::LIST_REQUESTS_MAX)
}
