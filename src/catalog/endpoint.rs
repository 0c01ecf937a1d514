//! Where a bucket is served: URL, region, addressing style, addresses.
//!
//! What the command line and the environment leave open is read from the profile here. Nothing is
//! asked of a server, save names of DNS.

use std::net::{IpAddr, SocketAddr};
use std::sync::PoisonError;

use aws_config::ConfigLoader;
use aws_types::service_config::ServiceConfigKey;
use tokio::net::lookup_host;
use tokio::time::{sleep, timeout};
use url::{Host, Url};

use super::client::backoff;
use super::limits::{ADDRESSES_MAX, RESOLVE_TIMEOUT, RESOLVE_TRIES_MAX};
use crate::error::{Error, ErrorKind, Result};
use crate::s3::Endpoint;
use crate::s3::uri::{encode_key, shown};

/// The region when nobody names one; S3 corrects it.
pub const REGION_DEFAULT: &str = "us-east-1";
/// Longest name of a region, in bytes.
const REGION_BYTES_MAX: usize = 64;
/// How directory buckets are called; their requests need sessions of their own.
const DIRECTORY_BUCKET_SUFFIX: &str = "--x-s3";

/// Where the bucket's name stands in a request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AddressingStyle {
    /// In the path for addresses, custom endpoints and names with dots; else in the host name.
    #[default]
    Auto,
    /// In the path: `https://host/bucket/key`.
    Path,
    /// In the host name: `https://bucket.host/key`.
    Virtual,
}

/// A server as the user names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EndpointUrl {
    tls: bool,
    /// With the port where it is not the scheme's own.
    host: String,
    is_address: bool,
    /// Starts and ends in a slash.
    path: String,
}

impl EndpointUrl {
    pub(crate) fn parse(text: &str) -> Result<Self> {
        let refuse = |why: &str| {
            Error::new(ErrorKind::Usage, format!("'{}' is not an endpoint: {why}", shown(text)))
                .advise("expected a URL such as https://s3.example.com or http://127.0.0.1:9000")
        };
        // A password must not come back in the message.
        if text.contains('@') {
            return Err(Error::new(
                ErrorKind::Usage,
                "the endpoint has a user or an '@' in it; keys come from the AWS_ variables",
            ));
        }
        let url = Url::parse(text.trim()).map_err(|error| refuse(&error.to_string()))?;
        let tls = match url.scheme() {
            "https" => true,
            "http" => false,
            _ => return Err(refuse("it must start with http:// or https://")),
        };
        if url.query().is_some() || url.fragment().is_some() {
            return Err(refuse("it has a query or a fragment"));
        }
        let name = url.host_str().ok_or_else(|| refuse("it has no host"))?;
        let host = url.port().map_or_else(|| name.to_owned(), |port| format!("{name}:{port}"));
        let is_address = !matches!(url.host(), Some(Host::Domain(_)));
        let path = format!("{}/", url.path().trim_end_matches('/'));
        Ok(Self { tls, host, is_address, path })
    }
}

/// Which S3 it is.
#[derive(Debug, Clone)]
pub(crate) struct Service {
    /// AWS's own when `None`.
    pub(crate) url: Option<EndpointUrl>,
    pub(crate) addressing: AddressingStyle,
}

impl Service {
    /// The bucket's endpoint in this region, without addresses yet.
    pub(crate) fn place(&self, bucket: &str, region: &str) -> Result<Endpoint> {
        let own = self.url.is_some();
        let url = match &self.url {
            Some(url) => url.clone(),
            None if bucket.ends_with(DIRECTORY_BUCKET_SUFFIX) => {
                let message = format!("s3://{bucket}: directory buckets are not supported");
                return Err(Error::new(ErrorKind::Usage, message)
                    .advise("copy the data to a general purpose bucket"));
            }
            None => {
                let china = if region.starts_with("cn-") { ".cn" } else { "" };
                let host = format!("s3.{region}.amazonaws.com{china}");
                EndpointUrl { tls: true, host, is_address: false, path: "/".to_owned() }
            }
        };
        let virtual_style = match self.addressing {
            AddressingStyle::Auto => !own && !bucket.contains('.'),
            AddressingStyle::Path => false,
            AddressingStyle::Virtual => !url.is_address,
        };
        let (host, path_prefix) = if virtual_style {
            (format!("{bucket}.{}", url.host), url.path)
        } else {
            (url.host, format!("{}{}/", url.path, encode_key(bucket)))
        };
        Ok(Endpoint::new(bucket, url.tls, &host, &path_prefix, region, vec![]))
    }
}

/// Looks the endpoint's name up and puts the answer first among its addresses.
///
/// Older addresses stay for a while, up to [`ADDRESSES_MAX`]: S3 names only eight at a time.
/// Tells whether there are new ones.
pub(crate) async fn refresh_addresses(endpoint: &Endpoint) -> Result<bool> {
    let (name, port) = (endpoint.server_name(), endpoint.port());
    let found = match name.parse::<IpAddr>() {
        Ok(address) => vec![SocketAddr::new(address, port)],
        Err(_) => look_up(name, port).await?,
    };
    let mut known = endpoint.addresses.write().unwrap_or_else(PoisonError::into_inner);
    let news = found.iter().any(|address| !known.contains(address));
    let mut merged: Vec<SocketAddr> = Vec::new();
    for address in found.into_iter().chain(known.iter().copied()) {
        if !merged.contains(&address) && merged.len() < ADDRESSES_MAX {
            merged.push(address);
        }
    }
    *known = merged;
    Ok(news)
}

async fn look_up(name: &str, port: u16) -> Result<Vec<SocketAddr>> {
    let mut tries = 1;
    loop {
        let why = match timeout(RESOLVE_TIMEOUT, lookup_host((name, port))).await {
            Ok(Ok(found)) => {
                let found: Vec<_> = found.collect();
                if !found.is_empty() {
                    return Ok(found);
                }
                "it has no address".to_owned()
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no answer within {} s", RESOLVE_TIMEOUT.as_secs()),
        };
        if tries == RESOLVE_TRIES_MAX {
            let message = format!("the name {name} cannot be resolved: {why}, tried {tries} times");
            return Err(Error::new(ErrorKind::Endpoint, message)
                .advise("check --endpoint-url, --region and the network"));
        }
        sleep(backoff(tries, fastrand::f64())).await;
        tries += 1;
    }
}

/// Whether the text can be a region; it becomes part of a host name.
pub(crate) fn is_region(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let ends_well = !text.starts_with('-') && !text.ends_with('-');
    (1..=REGION_BYTES_MAX).contains(&text.len()) && text.bytes().all(fits) && ends_well
}

/// What the environment and the profile say of S3.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Configured {
    pub(crate) endpoint_url: Option<String>,
    pub(crate) region: Option<String>,
}

impl Configured {
    /// Reads them. No server is asked, the instance's metadata least of all.
    pub(crate) async fn load(loader: ConfigLoader, profile: Option<&str>) -> Self {
        let mut loader = loader.no_credentials().region(None::<aws_types::region::Region>);
        if let Some(profile) = profile {
            loader = loader.profile_name(profile);
        }
        let config = loader.load().await;
        let read = |env: &str, key: &str| {
            let key = ServiceConfigKey::builder().service_id("s3").env(env).profile(key).build();
            let found = config.service_config()?.load_config(key.ok()?)?;
            Some(found.trim().to_owned()).filter(|found| !found.is_empty())
        };
        // No profile has an empty key: the first question is to the environment alone.
        let region = read("AWS_REGION", "").or_else(|| read("AWS_DEFAULT_REGION", "region"));
        Self { endpoint_url: read("AWS_ENDPOINT_URL", "endpoint_url"), region }
    }
}

#[cfg(test)]
mod tests {
    use super::super::loopback::run;
    use super::*;
    use aws_config::BehaviorVersion;
    use aws_types::os_shim_internal::{Env, Fs};

    fn placed(
        url: Option<&str>,
        style: AddressingStyle,
        bucket: &str,
        region: &str,
    ) -> (String, String) {
        let url = url.map(|url| EndpointUrl::parse(url).expect("a good URL"));
        let service = Service { url, addressing: style };
        let placed = service.place(bucket, region).expect("a place");
        let scheme = if placed.tls { "https" } else { "http" };
        (format!("{scheme}://{}", placed.host), placed.path_prefix)
    }

    #[test]
    fn places() {
        use AddressingStyle::{Auto, Path, Virtual};
        let check = |url, style, bucket, region, host: &str, prefix: &str| {
            let expected = (host.to_owned(), prefix.to_owned());
            assert_eq!(placed(url, style, bucket, region), expected);
        };
        check(None, Auto, "bkt", "eu-west-1", "https://bkt.s3.eu-west-1.amazonaws.com", "/");
        check(None, Path, "bkt", "eu-west-1", "https://s3.eu-west-1.amazonaws.com", "/bkt/");
        check(None, Auto, "b.k", "eu-west-1", "https://s3.eu-west-1.amazonaws.com", "/b.k/");
        check(None, Auto, "bkt", "cn-north-1", "https://bkt.s3.cn-north-1.amazonaws.com.cn", "/");
        let local = Some("http://127.0.0.1:9000");
        check(local, Auto, "bkt", "us-east-1", "http://127.0.0.1:9000", "/bkt/");
        check(local, Virtual, "bkt", "us-east-1", "http://127.0.0.1:9000", "/bkt/");
        let named = Some("https://s3.example.com/store/");
        check(named, Auto, "bkt", "us-east-1", "https://s3.example.com", "/store/bkt/");
        check(named, Virtual, "bkt", "us-east-1", "https://bkt.s3.example.com", "/store/");
        check(Some("http://[::1]:80"), Auto, "bkt", "x", "http://[::1]", "/bkt/");
        check(Some("http://localhost:443"), Auto, "bkt", "x", "http://localhost:443", "/bkt/");
    }

    #[test]
    fn bad_endpoints_are_refused() {
        let check = |text: &str, expected: &str| {
            let error = EndpointUrl::parse(text).expect_err("a bad URL");
            assert_eq!(error.kind(), ErrorKind::Usage);
            assert!(error.to_string().contains(expected), "{error}");
        };
        check("s3.example.com", "expected a URL such as");
        check("localhost:9000", "http:// or https://");
        check("ftp://h", "http:// or https://");
        check("http://h?x=1", "query");
        check("", "not an endpoint");
        check("https://me:hunter2@h", "keys come from");
        let error = EndpointUrl::parse("https://me:hunter2@h").expect_err("a password");
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }

    #[test]
    fn directory_buckets_are_refused_at_aws() {
        let aws = Service { url: None, addressing: AddressingStyle::Auto };
        let error = aws.place("x--usw2-az1--x-s3", "us-west-2").expect_err("not supported");
        assert!(error.to_string().contains("directory buckets"), "{error}");
    }

    #[test]
    fn regions_cannot_lead_elsewhere() {
        for good in ["us-east-1", "cn-north-1", "garage", "us-gov-west-1"] {
            assert!(is_region(good), "{good}");
        }
        for bad in ["", "evil.com/", "a.b", "-a", "US", "a\n", "a@b", &"a".repeat(65)] {
            assert!(!is_region(bad), "{bad}");
        }
    }

    #[test]
    fn addresses_are_kept_and_bounded() {
        run(async {
            let url = EndpointUrl::parse("http://127.0.0.1:9000").expect("a good URL");
            let service = Service { url: Some(url), addressing: AddressingStyle::Auto };
            let endpoint = service.place("bkt", "us-east-1").expect("a place");
            assert_eq!(refresh_addresses(&endpoint).await, Ok(true));
            assert_eq!(refresh_addresses(&endpoint).await, Ok(false));
            assert_eq!(endpoint.addresses(), [SocketAddr::from(([127, 0, 0, 1], 9000))]);
        });
    }

    #[test]
    fn the_profile_fills_in() {
        run(async {
            let load = async |env: &[(&str, &str)], profile: Option<&str>| {
                let file = "[default]\nregion = eu-north-1\n[profile local]\nregion = garage\n\
                            services = here\n[services here]\ns3 =\n  endpoint_url = http://x:1\n";
                let env = [&[("HOME", "/home"), ("AWS_CONFIG_FILE", "/config")], env].concat();
                let fs = Fs::from_slice(&[("/config", file)]);
                let loader = aws_config::defaults(BehaviorVersion::latest());
                let loader = loader.env(Env::from_slice(&env)).fs(fs);
                let found = Configured::load(loader, profile).await;
                (found.region.unwrap_or_default(), found.endpoint_url.unwrap_or_default())
            };
            let pair = |region: &str, url: &str| (region.to_owned(), url.to_owned());
            assert_eq!(load(&[], None).await, pair("eu-north-1", ""));
            assert_eq!(load(&[], Some("local")).await, pair("garage", "http://x:1"));
            assert_eq!(load(&[("AWS_PROFILE", "local")], None).await, pair("garage", "http://x:1"));
            let env = [("AWS_DEFAULT_REGION", "r2"), ("AWS_ENDPOINT_URL", "http://all:2")];
            assert_eq!(load(&env, None).await, pair("r2", "http://all:2"));
            let env = [("AWS_REGION", "r1"), ("AWS_DEFAULT_REGION", "r2")];
            assert_eq!(load(&env, None).await, pair("r1", ""));
            let env =
                [("AWS_ENDPOINT_URL_S3", "http://s3:3"), ("AWS_ENDPOINT_URL", "http://all:2")];
            assert_eq!(load(&env, None).await, pair("eu-north-1", "http://s3:3"));
        });
    }
}
