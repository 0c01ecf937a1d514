//! The endpoint of a bucket: URL, region, addressing style.
//!
//! Settings missing on the command line and in the environment are read from the profile here. No
//! server is asked.

use std::path::PathBuf;
use std::sync::Arc;

use url::{Host, Url};

use super::buckets::SERVICE;
use super::settings::{Found, Settings};
use crate::error::{Error, ErrorKind, Result};
use crate::s3::Endpoint;
use crate::s3::arn::{ARN, AccessPoint};
use crate::s3::aws::{self, ACCELERATE, Partition, Variant};
use crate::s3::headers::{CustomerKey, ExtraHeaders};
use crate::s3::proxy::Proxies;
use crate::s3::redirect::Redirects;
use crate::s3::sign::{ALL_REGIONS, DIRECTORY_SERVICE, PublishedKeys};
use crate::s3::uri::{encode_key, shown};

/// The region without a setting; S3 corrects it.
pub const REGION_DEFAULT: &str = "us-east-1";
/// The region of AWS's global endpoints, in the words of some SDKs.
const REGION_GLOBAL: &str = "aws-global";
/// Longest name of a region, in bytes.
const REGION_BYTES_MAX: usize = 64;

/// Position of the bucket's name in a request.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum AddressingStyle {
    /// In the path for IP addresses, custom endpoints and names with dots; else in the host name.
    #[default]
    Auto,
    /// In the path: `https://host/bucket/key`.
    Path,
    /// In the host name: `https://bucket.host/key`.
    Virtual,
}

impl AddressingStyle {
    /// # Errors
    /// [`ErrorKind::Usage`] for an unknown word.
    fn of(found: &Found) -> Result<Self> {
        Ok(match found.word(&["auto", "path", "virtual"])? {
            "path" => Self::Path,
            "virtual" => Self::Virtual,
            _ => Self::Auto,
        })
    }
}

/// A server's URL from the user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct EndpointUrl {
    tls: bool,
    /// With the port unless it is the scheme's default.
    host: String,
    is_address: bool,
    /// Starts and ends with a slash.
    path: String,
}

/// The error if a bucket or an access point has no endpoint.
fn refuse(name: &str, why: &str, advice: &str) -> Result<Endpoint> {
    let message = format!("s3://{}: {why}", shown(name));
    Err(Error::new(ErrorKind::Usage, message).advise(advice))
}

impl EndpointUrl {
    /// `from`: the source of the text, unless it is the command line.
    pub(crate) fn parse(text: &str, from: Option<&str>) -> Result<Self> {
        let named = from.map_or_else(String::new, |from| format!("{from}: "));
        let refuse = |why: &str| {
            let message = format!("{named}'{}' is not an endpoint: {why}", shown(text));
            Error::new(ErrorKind::Usage, message)
                .advise("expected a URL such as https://s3.example.com or http://127.0.0.1:9000")
        };
        // A password must not be repeated in the message.
        if text.contains('@') {
            return Err(Error::new(
                ErrorKind::Usage,
                format!(
                    "{named}the endpoint contains a user or an '@'; keys come from the AWS_ \
                     variables"
                ),
            ));
        }
        if !text.is_empty() && !text.contains("://") {
            return Err(refuse("http:// or https:// is missing"));
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

/// The S3 service, and options of every request to it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Service {
    /// AWS's own if `None`.
    pub(crate) url: Option<EndpointUrl>,
    pub(crate) addressing: AddressingStyle,
    /// The variant of AWS's own endpoints.
    pub(crate) variant: Variant,
    /// Transfer Acceleration, for buckets that have it.
    pub(crate) accelerate: bool,
    /// Directory buckets use sessions.
    pub(crate) sessions: bool,
    /// ARNs of multi-region access points are refused.
    pub(crate) no_multi_region: bool,
    pub(crate) requester_pays: bool,
    pub(crate) customer_key: Option<CustomerKey>,
    pub(crate) proxies: Proxies,
}

impl Service {
    /// The bucket's endpoint in this region, or the service's ([`SERVICE`]), without addresses and
    /// session.
    pub(crate) fn place(&self, bucket: &str, region: &str) -> Result<Endpoint> {
        if bucket == SERVICE {
            let mut url = self.url_or(|| self.variant.host(region))?;
            if url.is_accelerated() {
                url = EndpointUrl::of_aws(self.variant.host(region)?);
            }
            let mut endpoint = url.service(region);
            endpoint.proxy = self.proxies.of(&endpoint)?;
            endpoint.redirects = self.redirects();
            return Ok(endpoint);
        }
        let mut endpoint = if bucket.starts_with(ARN) {
            self.place_access_point(bucket, region)?
        } else if aws::is_directory_bucket(bucket) {
            self.place_directory_bucket(bucket, region)?
        } else {
            self.place_bucket(bucket, region)?
        };
        if self.customer_key.is_some() && !endpoint.tls {
            let message = format!("the SSE-C key is not sent to http://{}", endpoint.host);
            return Err(Error::new(ErrorKind::Usage, message)
                .advise("use an https:// endpoint, or omit --sse-c-key-file"));
        }
        endpoint.headers = ExtraHeaders::new(self.requester_pays, self.customer_key.as_ref());
        endpoint.proxy = self.proxies.of(&endpoint)?;
        endpoint.redirects = self.redirects();
        Ok(endpoint)
    }

    /// Redirects are followed if the server is not AWS's, which redirects to regions alone.
    fn redirects(&self) -> Option<Redirects> {
        let url = self.url.as_ref().filter(|url| !aws::is_host(&url.host));
        url.map(|_| Redirects::default())
    }

    fn place_bucket(&self, bucket: &str, region: &str) -> Result<Endpoint> {
        if self.url.is_none()
            && let Some((what, advice)) = aws::unsupported(bucket)
        {
            return refuse(bucket, what, advice);
        }
        if let (None, Some(why)) = (&self.url, aws::bucket_problem(bucket)) {
            return refuse(
                bucket,
                why,
                "check the bucket name, or give the server with --endpoint-url",
            );
        }
        let host = || match self.accelerate {
            true => self.variant.accelerate_host(region),
            false => self.variant.host(region),
        };
        let url = self.url_or(host)?;
        let own = self.url.is_some() && !url.is_accelerated();
        let is_label = !bucket.contains('.') && aws::is_host_name(bucket);
        if url.is_accelerated() && (!is_label || self.addressing == AddressingStyle::Path) {
            return refuse(
                bucket,
                "with Transfer Acceleration a bucket without dots is named in the host",
                "omit use_accelerate_endpoint or its endpoint, or --addressing-style path",
            );
        }
        let virtual_style = match self.addressing {
            AddressingStyle::Auto => !own && is_label,
            AddressingStyle::Path => false,
            AddressingStyle::Virtual if !url.is_address && !aws::is_host_name(bucket) => {
                return refuse(
                    bucket,
                    "the name cannot be part of a host's",
                    "omit --addressing-style",
                );
            }
            AddressingStyle::Virtual => !url.is_address,
        };
        let label = virtual_style.then_some(bucket);
        Ok(url.endpoint(bucket, label, region))
    }

    /// In the region of its ARN, whatever region is configured; without one for all regions.
    fn place_access_point(&self, arn: &str, region: &str) -> Result<Endpoint> {
        self.refuse_accelerated(arn, "access points have")?;
        let point = match AccessPoint::parse(arn) {
            Ok(point) => point,
            Err(why) => return refuse(arn, &why, "give the bucket name"),
        };
        let url = match point.is_multi_region() {
            true => {
                self.refuse_multi_region(arn, &point, region)?;
                EndpointUrl::of_aws(self.variant.multi_region_host(region)?)
            }
            false => self.url_or(|| self.variant.access_point_host(point.region))?,
        };
        if self.addressing == AddressingStyle::Path || url.is_address {
            return refuse(
                arn,
                "access points are named in the host, not in the path",
                "omit --addressing-style, or give the bucket name",
            );
        }
        if point.is_multi_region() {
            return Ok(url.endpoint(arn, Some(point.name), ALL_REGIONS));
        }
        let label = format!("{}-{}", point.name, point.account);
        Ok(url.endpoint(arn, Some(&label), point.region))
    }

    /// As botocore, but for an endpoint that is given: botocore passes over it, and sends the
    /// request past the server that the user has named.
    fn refuse_multi_region(&self, arn: &str, point: &AccessPoint<'_>, region: &str) -> Result<()> {
        let partition = Partition::of(region).name;
        let elsewhere =
            format!("it is in the partition {}, but {region} is in {partition}", point.partition);
        let (why, advice) = if self.no_multi_region {
            (
                "multi-region access points are disabled by a setting",
                "omit AWS_S3_DISABLE_MULTIREGION_ACCESS_POINTS, and \
                 s3_disable_multiregion_access_points in the profile; or give one of its buckets",
            )
        } else if self.url.is_some() {
            (
                "multi-region access points exist only in AWS, but another endpoint is given",
                "omit the endpoint URL, which may be in AWS_ variables and the profile, too; or \
                 give one of its buckets",
            )
        } else if partition != point.partition {
            (elsewhere.as_str(), "give a region of its partition with --region")
        } else {
            return Ok(());
        };
        refuse(arn, why, advice).map(|_| ())
    }

    /// In its zone, in the zone's region; or at the given endpoint, like the SDKs.
    fn place_directory_bucket(&self, bucket: &str, region: &str) -> Result<Endpoint> {
        self.refuse_accelerated(bucket, "directory buckets have")?;
        let Some(zone) = aws::zone(bucket) else {
            return refuse(
                bucket,
                "this directory bucket's name contains no zone",
                "check the bucket name",
            );
        };
        if bucket.contains('.') {
            return refuse(
                bucket,
                "a directory bucket's name has no dots",
                "check the bucket name",
            );
        }
        if self.customer_key.is_some() {
            return refuse(
                bucket,
                "directory buckets do not support SSE-C",
                "omit --sse-c-key-file",
            );
        }
        if self.requester_pays {
            return refuse(
                bucket,
                "directory buckets do not support requester pays",
                "omit --request-payer",
            );
        }
        let found = aws::region_of_zone(zone).filter(|_| self.url.is_none());
        let region = found.as_deref().unwrap_or(region);
        let url = self.url_or(|| self.variant.zone_host(zone, region))?;
        let in_path = url.is_address || self.addressing == AddressingStyle::Path;
        if in_path && self.url.is_none() {
            return refuse(
                bucket,
                "directory buckets are named in the host, not in the path",
                "omit --addressing-style",
            );
        }
        if !in_path && !aws::is_host_name(bucket) {
            return refuse(bucket, "the name cannot be part of a host's", "check the bucket name");
        }
        let mut endpoint = url.endpoint(bucket, (!in_path).then_some(bucket), region);
        endpoint.service = DIRECTORY_SERVICE;
        endpoint.session = self.sessions.then(|| Arc::new(PublishedKeys::new(None)));
        Ok(endpoint)
    }

    fn refuse_accelerated(&self, name: &str, what: &str) -> Result<()> {
        if !self.accelerate && !self.url.as_ref().is_some_and(EndpointUrl::is_accelerated) {
            return Ok(());
        }
        let why = format!("{what} no Transfer Acceleration");
        refuse(name, &why, "omit use_accelerate_endpoint, or its endpoint").map(|_| ())
    }

    /// The given server, or AWS's with this name.
    fn url_or(&self, host: impl FnOnce() -> Result<String>) -> Result<EndpointUrl> {
        match &self.url {
            Some(_) if self.variant != Variant::default() || self.accelerate => Err(Error::new(
                ErrorKind::Usage,
                "dual-stack, FIPS and accelerated endpoints exist only in AWS, but another \
                 endpoint is given",
            )
            .advise(
                "omit either the endpoint URL or --use-dualstack-endpoint, --use-fips-endpoint and \
                 use_accelerate_endpoint; they may stand in AWS_ variables and the profile too",
            )),
            Some(url) => Ok(url.clone()),
            None => host().map(EndpointUrl::of_aws),
        }
    }
}

impl Service {
    /// STS, at this URL or at AWS.
    pub(crate) fn place_sts(&self, url: Option<&EndpointUrl>, region: &str) -> Result<Endpoint> {
        let url = match url {
            Some(url) => url.clone(),
            None => EndpointUrl::of_aws(self.variant.sts_host(region_of_aws(region)?)),
        };
        let mut endpoint = url.service(region);
        endpoint.service = "sts";
        endpoint.proxy = self.proxies.of(&endpoint)?;
        Ok(endpoint)
    }

    /// S3 Control for an account, at this URL or at AWS. As in the AWS SDKs, the account is the
    /// first part of the host; an address has no such names.
    pub(crate) fn place_s3_control(
        &self,
        url: Option<&EndpointUrl>,
        account: &str,
        region: &str,
    ) -> Result<Endpoint> {
        let mut url = match url {
            Some(url) => url.clone(),
            None => EndpointUrl::of_aws(self.variant.s3_control_host(region_of_aws(region)?)?),
        };
        if !url.is_address {
            url.host = format!("{account}.{}", url.host);
        }
        let mut endpoint = url.service(region);
        endpoint.proxy = self.proxies.of(&endpoint)?;
        Ok(endpoint)
    }
}

/// The region, which becomes part of a host that gets the run's own keys.
fn region_of_aws(region: &str) -> Result<&str> {
    match is_region_of_aws(region) {
        true => Ok(region),
        false => Err(Error::new(
            ErrorKind::Usage,
            format!("'{}' is no region of AWS, whose access grants are asked for", shown(region)),
        )
        .advise("check --region, or set AWS_ENDPOINT_URL_S3_CONTROL and AWS_ENDPOINT_URL_STS")),
    }
}

impl EndpointUrl {
    fn of_aws(host: String) -> Self {
        Self { tls: true, host, is_address: false, path: "/".to_owned() }
    }

    /// The path of the URL, without its trailing slash; `None` if there is none.
    pub(crate) fn given_path(&self) -> Option<&str> {
        Some(self.path.trim_end_matches('/')).filter(|path| !path.is_empty())
    }

    /// True for an endpoint of Transfer Acceleration, where requests name the bucket in the host.
    fn is_accelerated(&self) -> bool {
        let suffix = self.host.strip_prefix(ACCELERATE);
        matches!(suffix, Some(".amazonaws.com" | ".dualstack.amazonaws.com"))
    }

    pub(crate) const fn is_tls(&self) -> bool {
        self.tls
    }

    /// The service's endpoint, which lists the buckets.
    fn service(self, region: &str) -> Endpoint {
        Endpoint::new(SERVICE, self.tls, &self.host, &self.path, region, vec![])
    }

    /// The endpoint of a bucket here, with this label before the host, or the bucket in the path.
    fn endpoint(self, bucket: &str, label: Option<&str>, region: &str) -> Endpoint {
        let (host, path_prefix) = match label {
            Some(label) => (format!("{label}.{}", self.host), self.path),
            None => (self.host, format!("{}{}/", self.path, encode_key(bucket))),
        };
        Endpoint::new(bucket, self.tls, &host, &path_prefix, region, vec![])
    }
}

/// The region of a setting. As in botocore, S3's global endpoint is in the default region, and so
/// are signatures for other servers.
pub(super) fn region_or_default(region: Option<String>) -> String {
    region.filter(|region| region != REGION_GLOBAL).unwrap_or_else(|| REGION_DEFAULT.to_owned())
}

/// True if the text can be a region: for a custom server any word, which is only signed with.
pub(crate) fn is_region(url: Option<&EndpointUrl>, text: &str) -> bool {
    match url {
        Some(_) => is_name_of_region(text),
        None => is_region_of_aws(text),
    }
}

/// True if the text can be a region of any server.
pub(crate) fn is_name_of_region(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    (1..=REGION_BYTES_MAX).contains(&text.len()) && text.bytes().all(fits)
}

/// True if the text can be a region of AWS; it becomes part of a host name.
pub(crate) fn is_region_of_aws(text: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let ends_well = !text.starts_with('-') && !text.ends_with('-');
    (1..=REGION_BYTES_MAX).contains(&text.len()) && text.bytes().all(fits) && ends_well
}

/// The setting of dual-stack endpoints, of all services or of S3.
const DUALSTACK: &str = "use_dualstack_endpoint";

/// The setting against multi-region access points: a variable, and a setting of the profile, of S3
/// too (botocore reads it there alone).
const NO_MULTI_REGION: (&str, &str) =
    ("AWS_S3_DISABLE_MULTIREGION_ACCESS_POINTS", "s3_disable_multiregion_access_points");

/// Settings for checksums of downloads, named as in the AWS tools.
const WHEN_SUPPORTED: &str = "when_supported";
const WHEN_REQUIRED: &str = "when_required";

/// Settings of S3 in the environment and the profile.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Configured {
    pub(crate) endpoint_url: Option<Found>,
    pub(crate) region: Option<Found>,
    /// File of certificates that are trusted instead of the system's.
    pub(crate) ca_bundle: Option<PathBuf>,
    pub(crate) addressing: AddressingStyle,
    /// Transfer Acceleration.
    pub(crate) accelerate: bool,
    pub(crate) dualstack: bool,
    /// As above, in the profile's settings of S3: as in botocore, it is passed over where an
    /// endpoint is given.
    pub(crate) dualstack_of_s3: bool,
    pub(crate) fips: bool,
    /// Directory buckets use no sessions.
    pub(crate) no_sessions: bool,
    /// ARNs of multi-region access points are refused.
    pub(crate) no_multi_region: bool,
    /// Checksums are requested only if required.
    pub(crate) checksums_only_when_required: bool,
}

impl Configured {
    /// Reads the settings, without requests to servers or the instance's metadata.
    ///
    /// # Errors
    /// [`ErrorKind::Usage`] for an unknown value.
    pub(crate) fn of(settings: &Settings) -> Result<Self> {
        let checksums = settings
            .find(&["AWS_RESPONSE_CHECKSUM_VALIDATION"], "response_checksum_validation")
            .map(|found| found.word(&[WHEN_SUPPORTED, WHEN_REQUIRED]))
            .transpose()?;
        let in_s3 = |key| -> Result<bool> {
            Ok(settings.in_s3(key).map(|found| found.switch()).transpose()?.unwrap_or(false))
        };
        let accelerate = in_s3("use_accelerate_endpoint")?;
        // As in botocore, which passes over the style with Transfer Acceleration.
        let addressing = match settings.in_s3("addressing_style").filter(|_| !accelerate) {
            Some(found) => AddressingStyle::of(&found)?,
            None => AddressingStyle::Auto,
        };
        let bundle = settings.find(&["AWS_CA_BUNDLE"], "ca_bundle");
        Ok(Self {
            endpoint_url: settings.endpoint_url("s3")?,
            region: settings.find(&["AWS_REGION", "AWS_DEFAULT_REGION"], "region"),
            ca_bundle: bundle.map(|found| PathBuf::from(found.value)),
            addressing,
            accelerate,
            dualstack_of_s3: in_s3(DUALSTACK)?,
            dualstack: settings.switch("AWS_USE_DUALSTACK_ENDPOINT", DUALSTACK)?,
            fips: settings.switch("AWS_USE_FIPS_ENDPOINT", "use_fips_endpoint")?,
            checksums_only_when_required: checksums == Some(WHEN_REQUIRED),
            no_sessions: settings
                .switch("AWS_S3_DISABLE_EXPRESS_SESSION_AUTH", "s3_disable_express_session_auth")?,
            no_multi_region: match settings.find(&[NO_MULTI_REGION.0], NO_MULTI_REGION.1) {
                Some(found) => found.switch()?,
                None => in_s3(NO_MULTI_REGION.1)?,
            },
        })
    }
}

#[cfg(test)]
mod cases;
mod known;

#[cfg(test)]
mod tests {
    use super::*;

    fn placed(
        url: Option<&str>,
        style: AddressingStyle,
        bucket: &str,
        region: &str,
    ) -> (String, String) {
        let url = url.map(|url| EndpointUrl::parse(url, None).expect("a good URL"));
        let service = Service { url, addressing: style, ..Service::default() };
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
        check(local, Auto, "tenant:B_k", "us-east-1", "http://127.0.0.1:9000", "/tenant%3AB_k/");
        check(
            None,
            Auto,
            "Old_Bucket",
            "us-east-1",
            "https://s3.us-east-1.amazonaws.com",
            "/Old_Bucket/",
        );
        let named = Some("https://s3.example.com/store/");
        check(named, Auto, "bkt", "us-east-1", "https://s3.example.com", "/store/bkt/");
        check(named, Virtual, "bkt", "us-east-1", "https://bkt.s3.example.com", "/store/");
        // The service itself.
        check(None, Virtual, "", "eu-west-1", "https://s3.eu-west-1.amazonaws.com", "/");
        check(named, Virtual, "", "us-east-1", "https://s3.example.com", "/store/");
        check(Some("http://[::1]:80"), Auto, "bkt", "x", "http://[::1]", "/bkt/");
        check(Some("http://localhost:443"), Auto, "bkt", "x", "http://localhost:443", "/bkt/");
    }

    #[test]
    fn bad_endpoints_are_refused() {
        let check = |text: &str, expected: &str| {
            let error = EndpointUrl::parse(text, None).expect_err("a bad URL");
            assert_eq!(error.kind(), ErrorKind::Usage);
            assert!(error.to_string().contains(expected), "{error}");
        };
        check("s3.example.com", "expected a URL such as");
        check("localhost:9000", "http:// or https:// is missing");
        check("127.0.0.1:9000", "http:// or https:// is missing; expected a URL");
        check("ftp://h", "http:// or https://");
        check("http://h?x=1", "query");
        check("", "not an endpoint");
        check("https://me:hunter2@h", "keys come from");
        let error = EndpointUrl::parse("https://me:hunter2@h", None).expect_err("a password");
        assert!(!error.to_string().contains("hunter2"), "{error}");
    }

    fn placed_by(service: &Service, bucket: &str, region: &str) -> Result<String> {
        let placed = service.place(bucket, region)?;
        let scheme = if placed.tls { "https" } else { "http" };
        let Endpoint { host, path_prefix, region, service, .. } = placed;
        Ok(format!("{scheme}://{host}{path_prefix} {service} {region}"))
    }

    fn at(url: Option<&str>) -> Service {
        let url = url.map(|url| EndpointUrl::parse(url, None).expect("a good URL"));
        Service { url, sessions: true, ..Service::default() }
    }

    /// From <https://docs.aws.amazon.com/AmazonS3/latest/userguide/dual-stack-endpoints.html> and
    /// the SDKs' common endpoint tests.
    #[test]
    fn variants_of_aws_have_their_names() {
        let variant = |dualstack, fips| Variant { dualstack, fips };
        let check = |variant, bucket: &str, region: &str, expected: &str| {
            let service = Service { variant, ..at(None) };
            assert_eq!(placed_by(&service, bucket, region).as_deref(), Ok(expected));
        };
        let dual = "https://bucketname.s3.dualstack.us-west-2.amazonaws.com/ s3 us-west-2";
        check(variant(true, false), "bucketname", "us-west-2", dual);
        let dotted = "https://s3.dualstack.us-west-2.amazonaws.com/b.n/ s3 us-west-2";
        check(variant(true, false), "b.n", "us-west-2", dotted);
        let fips = "https://bucket-name.s3-fips.dualstack.us-east-1.amazonaws.com/ s3 us-east-1";
        check(variant(true, true), "bucket-name", "us-east-1", fips);
        let alias = "https://p-abc-s3alias.s3-fips.us-east-1.amazonaws.com/ s3 us-east-1";
        check(variant(false, true), "p-abc-s3alias", "us-east-1", alias);
        let volume = "https://p-abc-ext-s3alias.s3.us-east-1.amazonaws.com/ s3 us-east-1";
        check(variant(false, false), "p-abc-ext-s3alias", "us-east-1", volume);
        for variant in [variant(true, false), variant(false, true)] {
            let service = Service { variant, ..at(Some("https://example.com")) };
            for bucket in ["b", POINT, "b--usw2-az1--x-s3"] {
                let error = placed_by(&service, bucket, "us-east-1").expect_err("refused");
                assert!(error.to_string().contains("another endpoint is given"), "{error}");
            }
        }
    }

    const POINT: &str = "arn:aws:s3:us-west-2:123456789012:accesspoint:myendpoint";

    /// From the SDKs' common endpoint tests.
    #[test]
    fn access_points_have_hosts() {
        let signed = "s3 us-west-2";
        let check = |service: Service, expected: &str| {
            let placed = placed_by(&service, POINT, "us-east-1");
            assert_eq!(placed, Ok(format!("{expected} {signed}")));
        };
        let host = "https://myendpoint-123456789012.s3-accesspoint.us-west-2.amazonaws.com/";
        check(at(None), host);
        let both = Service { variant: Variant { dualstack: true, fips: true }, ..at(None) };
        check(both, &host.replace("accesspoint.", "accesspoint-fips.dualstack."));
        let own = "http://beta.example.com:1234/path";
        check(at(Some(own)), "http://myendpoint-123456789012.beta.example.com:1234/path/");
        let path = Service { addressing: AddressingStyle::Path, ..at(None) };
        for service in [path, at(Some("http://127.0.0.1:9000"))] {
            let error = placed_by(&service, POINT, "us-east-1").expect_err("no path style");
            assert!(error.to_string().contains("not in the path"), "{error}");
        }
    }

    const ALL: &str = "arn:aws:s3::123456789012:accesspoint:mfzwi23gnjvgw.mrap";

    /// As botocore 1.43.67 places and refuses them, but for another endpoint.
    #[test]
    fn multi_region_access_points_are_in_no_region() {
        let host = "https://mfzwi23gnjvgw.mrap.accesspoint.s3-global.amazonaws.com/ s3 *";
        for region in ["us-east-1", "eu-west-3", REGION_DEFAULT] {
            for arn in [ALL, "arn:aws:s3::123456789012:accesspoint/mfzwi23gnjvgw.mrap"] {
                assert_eq!(placed_by(&at(None), arn, region).as_deref(), Ok(host));
            }
        }
        let (china, gov) = (ALL.replace(":aws:", ":aws-cn:"), ALL.replace(":aws:", ":aws-us-gov:"));
        let in_china = host.replace(".com/", ".com.cn/");
        assert_eq!(placed_by(&at(None), &china, "cn-north-1"), Ok(in_china));
        assert_eq!(placed_by(&at(None), &gov, "us-gov-west-1").as_deref(), Ok(host));
        let refused = |service: Service, arn: &str, expected: [&str; 2]| {
            let error = placed_by(&service, arn, "us-east-1").expect_err("refused");
            assert_eq!(error.kind(), ErrorKind::Usage);
            for expected in expected {
                assert!(error.to_string().contains(expected), "{error}");
            }
        };
        refused(at(None), &china, ["in the partition aws-cn, but us-east-1 is in aws", "--region"]);
        refused(at(None), &gov, ["in the partition aws-us-gov", "--region"]);
        let variant =
            |dualstack, fips| Service { variant: Variant { dualstack, fips }, ..at(None) };
        refused(variant(true, false), ALL, ["no dual-stack endpoints", "--use-dualstack-endpoint"]);
        refused(variant(false, true), ALL, ["no FIPS endpoints", "--use-fips-endpoint"]);
        let accelerated = Service { accelerate: true, ..at(None) };
        refused(accelerated, ALL, ["no Transfer Acceleration", "use_accelerate_endpoint"]);
        let disabled = Service { no_multi_region: true, ..at(None) };
        refused(disabled, ALL, ["disabled by a setting", "AWS_S3_DISABLE_MULTIREGION_ACCESS"]);
        let path = Service { addressing: AddressingStyle::Path, ..at(None) };
        refused(path, ALL, ["not in the path", "--addressing-style"]);
        for url in ["http://127.0.0.1:9000", "https://s3.us-west-2.amazonaws.com"] {
            refused(at(Some(url)), ALL, ["only in AWS", "omit the endpoint URL"]);
        }
    }

    /// From the SDKs' common endpoint tests; and the zone's region if known.
    #[test]
    fn directory_buckets_have_hosts() {
        let check = |service: &Service, bucket: &str, region: &str, expected: &str| {
            assert_eq!(placed_by(service, bucket, region).as_deref(), Ok(expected));
            let placed = service.place(bucket, region).expect("a place");
            assert_eq!(placed.session.is_some(), service.sessions, "{bucket}");
        };
        let bucket = "mybucket--usw2-az1--x-s3";
        let host = "https://mybucket--usw2-az1--x-s3.s3express-usw2-az1.us-west-2.amazonaws.com/ \
                    s3express us-west-2";
        check(&at(None), bucket, "us-west-2", host);
        check(&at(None), bucket, "eu-west-1", host);
        check(&Service { sessions: false, ..at(None) }, bucket, "us-west-2", host);
        let china = "https://mybucket--abcd-ab1--x-s3.s3express-abcd-ab1.cn-north-1.amazonaws.com\
                     .cn/ s3express cn-north-1";
        check(&at(None), "mybucket--abcd-ab1--x-s3", "cn-north-1", china);
        let own = "https://mybucket--usw2-az1--x-s3.custom.com/ s3express eu-1";
        check(&at(Some("https://custom.com")), bucket, "eu-1", own);
        let local = "https://10.0.0.1/mybucket--usw2-az1--x-s3/ s3express us-west-2";
        check(&at(Some("https://10.0.0.1")), bucket, "us-west-2", local);
        let refused = |service: Service, bucket: &str, expected: &str| {
            let error = placed_by(&service, bucket, "us-east-1").expect_err("refused");
            assert!(error.to_string().contains(expected), "{error}");
        };
        refused(at(None), "mybucket--usaz1--x-s3", "no zone");
        refused(at(None), "host:8080#--usw2-az1--x-s3", "part of a host's");
        refused(at(None), "my.bucket--test-ab1--x-s3", "no dots");
        let path = Service { addressing: AddressingStyle::Path, ..at(None) };
        refused(path, bucket, "not in the path");
        refused(Service { requester_pays: true, ..at(None) }, bucket, "support requester pays");
        let key = CustomerKey::from_file(&[7; 32]).expect("32 bytes");
        refused(Service { customer_key: Some(key), ..at(None) }, bucket, "support SSE-C");
    }

    #[test]
    fn reserved_names_are_refused_at_aws_alone() {
        let error = placed_by(&at(None), "x--ol-s3", "us-east-1").expect_err("refused");
        assert!(error.to_string().contains("Object Lambda"), "{error}");
        assert!(placed_by(&at(Some("https://h")), "x--ol-s3", "us-east-1").is_ok());
    }

    #[test]
    fn the_customers_key_goes_by_tls_alone() {
        let key = CustomerKey::from_file(&[7; 32]).expect("32 bytes");
        let service = |url| Service { customer_key: Some(key.clone()), ..at(url) };
        let error = placed_by(&service(Some("http://h:9000")), "b", "r").expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::Usage);
        assert!(error.to_string().contains("not sent to http://h:9000"), "{error}");
        for url in [None, Some("https://h:9000")] {
            let placed = service(url).place("bkt", "us-east-1").expect("a place");
            assert_eq!(placed.headers.iter(true).count(), 3);
        }
    }

    #[test]
    fn regions_cannot_lead_elsewhere() {
        for good in ["us-east-1", "cn-north-1", "garage", "us-gov-west-1"] {
            assert!(is_region(None, good), "{good}");
            assert_eq!(region_or_default(Some(good.to_owned())), good);
        }
        for region in [None, Some("us-east-1"), Some("aws-global")] {
            assert_eq!(region_or_default(region.map(str::to_owned)), "us-east-1");
        }
        let url = EndpointUrl::parse("http://x:1", None).expect("a good URL");
        for word in ["RegionOne", "us_east_1", "eu-1.example"] {
            assert!(is_region(Some(&url), word) && !is_region(None, word), "{word}");
        }
        for bad in ["", "a/b", "a b", "a\n", &"a".repeat(65)] {
            assert!(!is_region(Some(&url), bad), "{bad}");
        }
        for bad in ["", "evil.com/", "a.b", "-a", "US", "a\n", "a@b", &"a".repeat(65)] {
            assert!(!is_region(None, bad), "{bad}");
        }
    }

    /// With these variables, and this configuration file.
    fn configured(
        variables: &[(&str, &str)],
        file: &'static str,
        profile: Option<&str>,
    ) -> Result<Configured> {
        let given = [("HOME", "/home"), ("AWS_CONFIG_FILE", "/config")];
        let all = [&given, variables].concat();
        Configured::of(&Settings::of(&all, &[("/config", file)], profile)?)
    }

    #[test]
    fn the_profile_fills_in() {
        const FILE: &str = "[default]\nregion = eu-north-1\n[profile local]\nregion = garage\n\
                            services = here\n[services here]\ns3 =\n  endpoint_url = http://x:1\n";
        let check = |variables: &[(&str, &str)], profile, region: &str, url: Option<&str>| {
            let found = configured(variables, FILE, profile).expect("good words");
            let value = |found: Option<Found>| found.map(|found| found.value);
            assert_eq!(value(found.region).as_deref(), Some(region), "{variables:?}");
            assert_eq!(value(found.endpoint_url).as_deref(), url, "{variables:?}");
        };
        check(&[], None, "eu-north-1", None);
        check(&[], Some("local"), "garage", Some("http://x:1"));
        for variable in ["AWS_PROFILE", "AWS_DEFAULT_PROFILE"] {
            check(&[(variable, "local")], None, "garage", Some("http://x:1"));
        }
        let all = ("AWS_ENDPOINT_URL", "http://all:2");
        check(&[("AWS_DEFAULT_REGION", "r2"), all], None, "r2", Some("http://all:2"));
        check(&[("AWS_REGION", "r1"), ("AWS_DEFAULT_REGION", "r2")], None, "r1", None);
        let own = ("AWS_ENDPOINT_URL_S3", "http://s3:3");
        check(&[own, all], None, "eu-north-1", Some("http://s3:3"));
        // Empty values hide nothing.
        let empty = [("AWS_ENDPOINT_URL_S3", ""), ("AWS_REGION", " "), ("AWS_PROFILE", "")];
        check(&[&empty[..], &[all]].concat(), None, "eu-north-1", Some("http://all:2"));
        let ignored = ("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "true");
        check(&[own, all, ignored], Some("local"), "garage", None);
    }

    #[test]
    fn switches_come_from_environment_and_profile() {
        const FILE: &str = "[profile dual]\nuse_dualstack_endpoint = True\n\
                            [profile fips]\nuse_fips_endpoint = true\n\
                            s3_disable_express_session_auth = true\n";
        let load = |variables: &[(&str, &str)], profile| {
            let found = configured(variables, FILE, Some(profile))?;
            Ok::<_, Error>((found.dualstack, found.fips, found.no_sessions))
        };
        assert_eq!(load(&[], "dual"), Ok((true, false, false)));
        assert_eq!(load(&[], "fips"), Ok((false, true, true)));
        let env = [("AWS_USE_DUALSTACK_ENDPOINT", "false"), ("AWS_USE_FIPS_ENDPOINT", "TRUE")];
        assert_eq!(load(&env, "dual"), Ok((false, true, false)));
        let env = [("AWS_S3_DISABLE_EXPRESS_SESSION_AUTH", "true")];
        assert_eq!(load(&env, "dual"), Ok((true, false, true)));
        let regions = |file, variables: &[(&str, &str)]| {
            let found = configured(variables, file, None)?;
            Ok::<_, Error>(found.no_multi_region)
        };
        const OF_S3: &str = "[default]\ns3 =\n  s3_disable_multiregion_access_points = true\n";
        const OF_ALL: &str = "[default]\ns3_disable_multiregion_access_points = true\n";
        assert_eq!(regions("[default]\n", &[]), Ok(false));
        assert_eq!((regions(OF_S3, &[]), regions(OF_ALL, &[])), (Ok(true), Ok(true)));
        let variable = |value| [("AWS_S3_DISABLE_MULTIREGION_ACCESS_POINTS", value)];
        assert_eq!(regions(OF_S3, &variable("false")), Ok(false));
        assert_eq!(regions("[default]\n", &variable("true")), Ok(true));
        assert!(regions(OF_S3, &variable("yes")).is_err());
        let checksums = |value| {
            let found = configured(&[("AWS_RESPONSE_CHECKSUM_VALIDATION", value)], FILE, None)?;
            Ok::<_, Error>(found.checksums_only_when_required)
        };
        assert_eq!(checksums("When_Required"), Ok(true));
        assert_eq!(checksums("when_supported"), Ok(false));
        let error = checksums("never").expect_err("no such word").to_string();
        let expected = "AWS_RESPONSE_CHECKSUM_VALIDATION is 'never'; expected when_supported or";
        assert!(error.starts_with(expected), "{error}");
        let error = load(&[("AWS_USE_FIPS_ENDPOINT", "yes")], "dual").expect_err("yes");
        assert!(error.to_string().contains("AWS_USE_FIPS_ENDPOINT"), "{error}");
        assert!(error.to_string().contains("expected true or false"), "{error}");
    }
}
