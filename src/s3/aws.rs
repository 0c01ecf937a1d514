//! AWS's host names: partitions, variants, access points, zones of directory buckets.
//!
//! Pure. The names are those of the SDKs' `partitions.json` and of S3's endpoint rules.

use std::fmt::Write as _;

use crate::error::{Error, ErrorKind, Result};

/// Shortest bucket name, in bytes.
const BUCKET_BYTES_MIN: usize = 3;
/// Longest bucket name that can be a prefix of a host name, in bytes.
const HOST_LABEL_BYTES_MAX: usize = 63;

/// A partition of AWS, with names and accounts of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Partition {
    /// Its name in ARNs.
    pub name: &'static str,
    /// Prefix of its regions.
    region_prefix: &'static str,
    /// Suffix of S3's host names, including dual-stack ones.
    suffix: &'static str,
    /// Suffix of other services' dual-stack host names.
    dualstack_suffix: &'static str,
    /// Suffix of the sign-in service's host names.
    sign_in_suffix: &'static str,
}

/// All partitions but the commercial one, which has all other regions.
const PARTITIONS: [Partition; 7] = [
    Partition {
        name: "aws-cn",
        region_prefix: "cn-",
        suffix: "amazonaws.com.cn",
        dualstack_suffix: "api.amazonwebservices.com.cn",
        sign_in_suffix: "signin.amazonaws.cn",
    },
    Partition {
        name: "aws-eusc",
        region_prefix: "eusc-",
        suffix: "amazonaws.eu",
        dualstack_suffix: "api.amazonwebservices.eu",
        sign_in_suffix: "signin.amazonaws-eusc.eu",
    },
    Partition {
        name: "aws-iso",
        region_prefix: "us-iso-",
        suffix: "c2s.ic.gov",
        dualstack_suffix: "api.aws.ic.gov",
        sign_in_suffix: "signin.c2shome.ic.gov",
    },
    Partition {
        name: "aws-iso-b",
        region_prefix: "us-isob-",
        suffix: "sc2s.sgov.gov",
        dualstack_suffix: "api.aws.scloud",
        sign_in_suffix: "signin.sc2shome.sgov.gov",
    },
    Partition {
        name: "aws-iso-e",
        region_prefix: "eu-isoe-",
        suffix: "cloud.adc-e.uk",
        dualstack_suffix: "api.cloud-aws.adc-e.uk",
        sign_in_suffix: "signin.csphome.adc-e.uk",
    },
    Partition {
        name: "aws-iso-f",
        region_prefix: "us-isof-",
        suffix: "csp.hci.ic.gov",
        dualstack_suffix: "api.aws.hci.ic.gov",
        sign_in_suffix: "signin.csphome.hci.ic.gov",
    },
    Partition {
        name: AWS_US_GOV,
        region_prefix: "us-gov-",
        suffix: "amazonaws.com",
        dualstack_suffix: "api.aws",
        sign_in_suffix: "signin.amazonaws-us-gov.com",
    },
];

const COMMERCIAL: Partition = Partition {
    name: "aws",
    region_prefix: "",
    suffix: "amazonaws.com",
    dualstack_suffix: "api.aws",
    sign_in_suffix: "signin.aws.amazon.com",
};

/// The partition whose sign-in service has FIPS endpoints with names of their own.
const AWS_US_GOV: &str = "aws-us-gov";

impl Partition {
    /// The partition of a region.
    #[must_use]
    pub fn of(region: &str) -> Self {
        let is_its = |found: &&Self| region.starts_with(found.region_prefix);
        PARTITIONS.iter().find(is_its).copied().unwrap_or(COMMERCIAL)
    }
}

/// True for a host of AWS, with or without a port.
#[must_use]
pub fn is_host(host: &str) -> bool {
    let name = host.split(':').next().unwrap_or_default().to_ascii_lowercase();
    let is_below = |suffix: &str| name.strip_suffix(suffix).is_some_and(|it| it.ends_with('.'));
    let mut all = PARTITIONS.iter().chain([&COMMERCIAL]);
    all.any(|found| is_below(found.suffix) || is_below(found.dualstack_suffix))
}

/// Which of a region's endpoints to use.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Variant {
    /// Endpoints with IPv4 and IPv6 addresses.
    pub dualstack: bool,
    /// Endpoints with FIPS-validated cryptography.
    pub fips: bool,
}

/// The name of Transfer Acceleration in host names.
pub const ACCELERATE: &str = "s3-accelerate";

impl Variant {
    /// The host of a region's general purpose buckets.
    pub fn host(self, region: &str) -> Result<String> {
        self.named("s3", "", region)
    }

    /// The host of buckets with Transfer Acceleration, whatever their region.
    pub fn accelerate_host(self, region: &str) -> Result<String> {
        let partition = Partition::of(region);
        let refuse = |why: String| {
            Err(Error::new(ErrorKind::Usage, why).advise("omit use_accelerate_endpoint"))
        };
        if self.fips {
            return refuse("there is no Transfer Acceleration with FIPS endpoints".to_owned());
        }
        if partition.name != COMMERCIAL.name {
            return refuse(format!("there is no Transfer Acceleration in {region}"));
        }
        let dualstack = if self.dualstack { ".dualstack" } else { "" };
        Ok(format!("{ACCELERATE}{dualstack}.{}", partition.suffix))
    }

    /// The host that an access point's name and account are prepended to.
    pub fn access_point_host(self, region: &str) -> Result<String> {
        self.named("s3-accesspoint", "", region)
    }

    /// The host that the alias of a multi-region access point is prepended to: by the endpoint
    /// rules of botocore 1.43.67, in the partition of this region.
    pub fn multi_region_host(self, region: &str) -> Result<String> {
        let refuse = |what: &str, advice: &str| {
            let message = format!("multi-region access points have no {what} endpoints");
            Err(Error::new(ErrorKind::Usage, message).advise(advice))
        };
        if self.dualstack {
            return refuse(
                "dual-stack",
                "omit --use-dualstack-endpoint and use_dualstack_endpoint",
            );
        }
        if self.fips {
            return refuse("FIPS", "omit --use-fips-endpoint and use_fips_endpoint");
        }
        Ok(format!("accesspoint.s3-global.{}", Partition::of(region).suffix))
    }

    /// The host of a zone's directory buckets.
    pub fn zone_host(self, zone: &str, region: &str) -> Result<String> {
        self.named("s3express", &format!("-{zone}"), region)
    }

    /// The host of the sign-in service, which renews the keys of a session of `aws login`: by the
    /// endpoint rules of botocore 1.44.
    #[must_use]
    pub fn sign_in_host(self, region: &str) -> String {
        let partition = Partition::of(region);
        let Partition { suffix, dualstack_suffix, sign_in_suffix, .. } = partition;
        match (self.fips, self.dualstack) {
            (false, false) => format!("{region}.{sign_in_suffix}"),
            (true, false) if region == "us-gov-west-1" => {
                "signin-fips.amazonaws-us-gov.com".to_owned()
            }
            (true, false) if partition.name == AWS_US_GOV => {
                format!("{region}.signin-fips.amazonaws-us-gov.com")
            }
            (true, false) => format!("signin-fips.{region}.{suffix}"),
            (false, true) => format!("signin.{region}.{dualstack_suffix}"),
            (true, true) => format!("signin-fips.{region}.{dualstack_suffix}"),
        }
    }

    /// The host of S3 Control, which an account is prepended to.
    pub fn s3_control_host(self, region: &str) -> Result<String> {
        self.named("s3-control", "", region)
    }

    /// The host of STS: by the endpoint rules of botocore 1.43.
    #[must_use]
    pub fn sts_host(self, region: &str) -> String {
        let Partition { name, suffix, dualstack_suffix, .. } = Partition::of(region);
        // The ordinary endpoints of this partition are validated.
        let is_plain = !self.fips || name == AWS_US_GOV && !self.dualstack;
        let service = if is_plain { "sts" } else { "sts-fips" };
        format!("{service}.{region}.{}", if self.dualstack { dualstack_suffix } else { suffix })
    }

    fn named(self, service: &str, zone: &str, region: &str) -> Result<String> {
        let partition = Partition::of(region);
        if self.fips && partition.name == "aws-cn" {
            let message = format!("there are no FIPS endpoints in {region}");
            return Err(Error::new(ErrorKind::Usage, message)
                .advise("omit --use-fips-endpoint and use_fips_endpoint"));
        }
        let mut host = service.to_owned();
        host.push_str(if self.fips { "-fips" } else { "" });
        host.push_str(zone);
        host.push_str(if self.dualstack { ".dualstack" } else { "" });
        write!(host, ".{region}.{}", partition.suffix).expect("a String takes all");
        Ok(host)
    }
}

/// Suffixes of directory buckets and their access points: `NAME--ZONE--x-s3`.
const ZONAL_SUFFIXES: [&str; 2] = ["--x-s3", "--xa-s3"];

/// True if the name is that of a directory bucket, or of an access point of one.
#[must_use]
pub fn is_directory_bucket(bucket: &str) -> bool {
    ZONAL_SUFFIXES.iter().any(|suffix| bucket.ends_with(suffix))
}

/// The zone in a directory bucket's name, if any.
#[must_use]
pub fn zone(bucket: &str) -> Option<&str> {
    let name = ZONAL_SUFFIXES.iter().find_map(|suffix| bucket.strip_suffix(suffix))?;
    let (name, zone) = name.rsplit_once("--")?;
    (!name.is_empty() && zone.contains('-')).then_some(zone)
}

/// Areas in the IDs of zones, and in the names of regions.
const AREAS: [(&str, &str); 11] = [
    ("usg", "us-gov"),
    ("us", "us"),
    ("eu", "eu"),
    ("ap", "ap"),
    ("af", "af"),
    ("ca", "ca"),
    ("cn", "cn"),
    ("il", "il"),
    ("me", "me"),
    ("mx", "mx"),
    ("sa", "sa"),
];

/// Parts of an area, in the same two forms; two letters before one.
const QUARTERS: [(&str, &str); 9] = [
    ("ne", "northeast"),
    ("nw", "northwest"),
    ("se", "southeast"),
    ("sw", "southwest"),
    ("n", "north"),
    ("s", "south"),
    ("e", "east"),
    ("w", "west"),
    ("c", "central"),
];

/// The region of a zone, derived from its ID: `usw2-az1` is in `us-west-2`.
#[must_use]
pub fn region_of_zone(zone: &str) -> Option<String> {
    let start = zone.split('-').next()?;
    let letters = start.trim_end_matches(|found: char| found.is_ascii_digit());
    let number = &start[letters.len()..];
    if number.is_empty() {
        return None;
    }
    AREAS.iter().find_map(|(area, long)| {
        let quarter = letters.strip_prefix(area)?;
        let (_, quarter) = QUARTERS.iter().find(|(short, _)| *short == quarter)?;
        Some(format!("{long}-{quarter}-{number}"))
    })
}

/// Why buckets of this name at AWS are not supported, and what to do instead.
#[must_use]
pub fn unsupported(bucket: &str) -> Option<(&'static str, &'static str)> {
    if bucket.ends_with("--ol-s3") {
        Some((
            "Object Lambda access points are not supported: lengths are not known in advance",
            "give the bucket, or an ordinary access point",
        ))
    } else if bucket.ends_with("--op-s3") {
        Some(("S3 on Outposts is not supported", "copy the data to a bucket in a region"))
    } else if bucket.ends_with("--table-s3") {
        Some(("table buckets are not supported", "give a general purpose bucket"))
    } else if bucket.ends_with(".mrap") {
        Some((
            "this is the alias of a multi-region access point, which is named by its ARN",
            "give s3://arn:aws:s3::ACCOUNT:accesspoint:ALIAS.mrap",
        ))
    } else {
        None
    }
}

/// Why AWS cannot have a bucket of this name
/// (<https://docs.aws.amazon.com/AmazonS3/latest/userguide/bucketnamingrules.html>). Old buckets in
/// us-east-1 may have upper-case letters, underscores and up to 255 characters.
#[must_use]
pub fn bucket_problem(bucket: &str) -> Option<&'static str> {
    let is_fit = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_');
    if !bucket.bytes().all(is_fit) {
        Some("a bucket name of AWS has only letters, digits, dots, hyphens and underscores")
    } else if bucket.len() < BUCKET_BYTES_MIN {
        Some("a bucket name of AWS has at least 3 characters")
    } else if bucket.split('.').filter(|part| part.parse::<u8>().is_ok()).count() == 4 {
        Some("a bucket name of AWS cannot look like an IP address")
    } else {
        None
    }
}

/// True if a bucket of this name can be a prefix of a host name: it follows the current rules.
#[must_use]
pub fn is_host_name(bucket: &str) -> bool {
    let is_fit = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let is_label = |label: &str| {
        let is_inner = !label.starts_with('-') && !label.ends_with('-');
        !label.is_empty() && label.bytes().all(is_fit) && is_inner
    };
    bucket.len() <= HOST_LABEL_BYTES_MAX && bucket.split('.').all(is_label)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_buckets() {
        for (bucket, is_host) in
            [("my-bucket.1", true), ("MyBucket", false), ("my_bucket", false), ("-bucket", false)]
        {
            assert_eq!(bucket_problem(bucket), None, "{bucket}");
            assert_eq!(is_host_name(bucket), is_host, "{bucket}");
        }
        assert!(!is_host_name(&"b".repeat(64)) && !is_host_name("b..b"));
        for (bucket, why) in [("tenant:b", "only letters"), ("ab", "3 char"), ("10.0.0.1", "IP")] {
            assert!(
                bucket_problem(bucket).is_some_and(|problem| problem.contains(why)),
                "{bucket}"
            );
        }
    }

    #[test]
    fn hosts_of_aws_are_known() {
        for host in
            ["s3.eu-west-1.amazonaws.com", "b.S3.amazonaws.com:443", "s3.x.amazonaws.com.cn"]
        {
            assert!(is_host(host), "{host}");
        }
        for host in ["amazonaws.com.test", "myamazonaws.com", "10.0.0.1:8080", "[::1]", "s3.test"] {
            assert!(!is_host(host), "{host}");
        }
    }

    /// By the endpoint rules of s3control and sts of botocore 1.43.67.
    #[test]
    fn services_of_access_grants_have_their_names() {
        for (variant, region, s3_control, sts) in [
            (
                PLAIN,
                "eu-west-1",
                "s3-control.eu-west-1.amazonaws.com",
                "sts.eu-west-1.amazonaws.com",
            ),
            (
                DUAL,
                "eu-west-1",
                "s3-control.dualstack.eu-west-1.amazonaws.com",
                "sts.eu-west-1.api.aws",
            ),
            (
                FIPS,
                "us-east-1",
                "s3-control-fips.us-east-1.amazonaws.com",
                "sts-fips.us-east-1.amazonaws.com",
            ),
            (
                BOTH,
                "us-east-1",
                "s3-control-fips.dualstack.us-east-1.amazonaws.com",
                "sts-fips.us-east-1.api.aws",
            ),
            (
                FIPS,
                "us-gov-west-1",
                "s3-control-fips.us-gov-west-1.amazonaws.com",
                "sts.us-gov-west-1.amazonaws.com",
            ),
            (
                PLAIN,
                "cn-north-1",
                "s3-control.cn-north-1.amazonaws.com.cn",
                "sts.cn-north-1.amazonaws.com.cn",
            ),
        ] {
            assert_eq!(variant.s3_control_host(region).as_deref(), Ok(s3_control));
            assert_eq!(variant.sts_host(region), sts);
        }
        assert!(FIPS.s3_control_host("cn-north-1").is_err());
    }

    const PLAIN: Variant = Variant { dualstack: false, fips: false };
    const DUAL: Variant = Variant { dualstack: true, fips: false };
    const FIPS: Variant = Variant { dualstack: false, fips: true };
    const BOTH: Variant = Variant { dualstack: true, fips: true };

    /// The hosts of <https://docs.aws.amazon.com/general/latest/gr/s3.html> and, for the others,
    /// `partitions.json` and the endpoint tests that the SDKs share.
    #[test]
    fn every_partition_has_its_names() {
        let check = |variant: Variant, region: &str, expected: &str| {
            assert_eq!(variant.host(region).as_deref(), Ok(expected), "{region}");
        };
        check(PLAIN, "us-east-1", "s3.us-east-1.amazonaws.com");
        check(DUAL, "us-west-2", "s3.dualstack.us-west-2.amazonaws.com");
        check(FIPS, "us-east-1", "s3-fips.us-east-1.amazonaws.com");
        check(BOTH, "us-east-1", "s3-fips.dualstack.us-east-1.amazonaws.com");
        check(FIPS, "us-gov-west-1", "s3-fips.us-gov-west-1.amazonaws.com");
        check(BOTH, "us-gov-east-1", "s3-fips.dualstack.us-gov-east-1.amazonaws.com");
        check(PLAIN, "cn-north-1", "s3.cn-north-1.amazonaws.com.cn");
        check(DUAL, "cn-northwest-1", "s3.dualstack.cn-northwest-1.amazonaws.com.cn");
        check(PLAIN, "us-iso-east-1", "s3.us-iso-east-1.c2s.ic.gov");
        check(FIPS, "us-iso-west-1", "s3-fips.us-iso-west-1.c2s.ic.gov");
        check(PLAIN, "us-isob-east-1", "s3.us-isob-east-1.sc2s.sgov.gov");
        check(PLAIN, "eu-isoe-west-1", "s3.eu-isoe-west-1.cloud.adc-e.uk");
        check(PLAIN, "us-isof-south-1", "s3.us-isof-south-1.csp.hci.ic.gov");
        check(PLAIN, "eusc-de-east-1", "s3.eusc-de-east-1.amazonaws.eu");
        check(PLAIN, "xx-new-7", "s3.xx-new-7.amazonaws.com");
        let error = FIPS.host("cn-north-1").expect_err("there are none");
        assert!(error.to_string().contains("no FIPS endpoints in cn-north-1"), "{error}");
    }

    /// From the endpoint tests that the SDKs share, and for access points
    /// <https://docs.aws.amazon.com/AmazonS3/latest/API/dual-stack-endpoints.html>.
    #[test]
    fn access_points_and_zones_have_hosts_of_their_own() {
        let point = |variant: Variant| variant.access_point_host("us-west-2").expect("a host");
        assert_eq!(point(PLAIN), "s3-accesspoint.us-west-2.amazonaws.com");
        assert_eq!(point(BOTH), "s3-accesspoint-fips.dualstack.us-west-2.amazonaws.com");
        let zone = |variant: Variant| variant.zone_host("usw2-az1", "us-west-2").expect("a host");
        assert_eq!(zone(PLAIN), "s3express-usw2-az1.us-west-2.amazonaws.com");
        assert_eq!(zone(FIPS), "s3express-fips-usw2-az1.us-west-2.amazonaws.com");
        assert_eq!(zone(BOTH), "s3express-fips-usw2-az1.dualstack.us-west-2.amazonaws.com");
    }

    #[test]
    fn zones_are_read_from_names() {
        assert_eq!(zone("train--usw2-az1--x-s3"), Some("usw2-az1"));
        assert_eq!(zone("my--s3--bucket--abcd-ab1--x-s3"), Some("abcd-ab1"));
        assert_eq!(zone("point--test1-long1-zone-ab1--xa-s3"), Some("test1-long1-zone-ab1"));
        for bad in ["train", "train--usaz1--x-s3", "train--x-s3", "--usw2-az1--x-s3"] {
            assert_eq!(zone(bad), None, "{bad}");
        }
        assert!(is_directory_bucket("a--b--x-s3") && !is_directory_bucket("a--b--x-s"));
    }

    /// The table of
    /// <https://docs.aws.amazon.com/AmazonS3/latest/userguide/endpoint-directory-buckets-AZ.html>.
    #[test]
    fn the_sign_in_service_has_names_of_its_own() {
        let check = |fips, dualstack, region, expected| {
            assert_eq!(Variant { fips, dualstack }.sign_in_host(region), expected);
        };
        check(false, false, "us-east-1", "us-east-1.signin.aws.amazon.com");
        check(false, false, "cn-north-1", "cn-north-1.signin.amazonaws.cn");
        check(false, false, "us-gov-west-1", "us-gov-west-1.signin.amazonaws-us-gov.com");
        check(false, false, "us-iso-east-1", "us-iso-east-1.signin.c2shome.ic.gov");
        check(false, false, "us-isob-east-1", "us-isob-east-1.signin.sc2shome.sgov.gov");
        check(false, false, "us-isof-south-1", "us-isof-south-1.signin.csphome.hci.ic.gov");
        check(false, false, "eu-isoe-west-1", "eu-isoe-west-1.signin.csphome.adc-e.uk");
        check(false, false, "eusc-de-east-1", "eusc-de-east-1.signin.amazonaws-eusc.eu");
        check(true, false, "us-east-1", "signin-fips.us-east-1.amazonaws.com");
        check(true, false, "us-gov-west-1", "signin-fips.amazonaws-us-gov.com");
        check(true, false, "us-gov-east-1", "us-gov-east-1.signin-fips.amazonaws-us-gov.com");
        check(false, true, "eu-west-1", "signin.eu-west-1.api.aws");
        check(true, true, "cn-north-1", "signin-fips.cn-north-1.api.amazonwebservices.com.cn");
    }

    #[test]
    fn zones_lie_in_regions() {
        for (zone, region) in [
            ("use1-az4", "us-east-1"),
            ("use2-az1", "us-east-2"),
            ("usw2-az3", "us-west-2"),
            ("aps1-az1", "ap-south-1"),
            ("apne1-az4", "ap-northeast-1"),
            ("eun1-az2", "eu-north-1"),
            ("euw1-az1", "eu-west-1"),
            ("usw2-lax1-az1", "us-west-2"),
            ("usgw1-az1", "us-gov-west-1"),
            ("cac1-az2", "ca-central-1"),
        ] {
            assert_eq!(region_of_zone(zone).as_deref(), Some(region), "{zone}");
        }
        for unknown in ["test-ab1", "abcd-ab1", "us-az1", "usx1-az1", "-az1", ""] {
            assert_eq!(region_of_zone(unknown), None, "{unknown}");
        }
    }

    #[test]
    fn reserved_endings_are_known() {
        for name in ["a--ol-s3", "a--op-s3", "a--table-s3", "mfzwi23gnjvgw.mrap"] {
            assert!(unsupported(name).is_some(), "{name}");
        }
        assert!(unsupported("my-point-abc-s3alias").is_none() && unsupported("b").is_none());
    }
}
