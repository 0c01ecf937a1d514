//! ARNs of access points, which may replace a bucket's name.
//!
//! Pure. Any other kind of ARN is refused with its name.

use crate::s3::aws::Partition;

/// Prefix of every ARN.
pub(crate) const ARN: &str = "arn:";
/// End of the alias of every multi-region access point.
const ALIAS_END: &str = ".mrap";
/// Longest name of an access point, in bytes.
const NAME_BYTES_MAX: usize = 50;
/// Longest part of a host name between dots, in bytes (RFC 1035).
const LABEL_BYTES_MAX: usize = 63;
/// Digits of an account.
const ACCOUNT_DIGITS: usize = 12;

/// An access point of a general purpose bucket, or of buckets in several regions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AccessPoint<'a> {
    /// Its partition.
    pub partition: &'a str,
    /// Its region, for which requests are signed; empty for a multi-region access point.
    pub region: &'a str,
    /// Its owner's account.
    pub account: &'a str,
    /// Its name; the alias of a multi-region access point, which has dots.
    pub name: &'a str,
}

/// Splits `arn:...accesspoint/NAME/KEY` into the access point's ARN and the key.
///
/// # Errors
/// Why it is not an access point.
pub(crate) fn split(text: &str) -> Result<(&str, &str), String> {
    // arn:PARTITION:SERVICE:REGION:ACCOUNT:RESOURCE, where the resource has its own separator.
    let resource_at = match text.match_indices(':').nth(4) {
        Some((at, _)) => at + 1,
        None => return Err("the ARN is incomplete".to_owned()),
    };
    let resource = &text[resource_at..];
    let kind_end = resource.find([':', '/']).unwrap_or(resource.len());
    let rest = &resource[(kind_end + 1).min(resource.len())..];
    let name_end = rest.find('/').unwrap_or(rest.len());
    let end = text.len() - (rest.len() - name_end);
    let (arn, key) = (&text[..end], text[end..].strip_prefix('/').unwrap_or(""));
    AccessPoint::parse(arn)?;
    Ok((arn, key))
}

impl<'a> AccessPoint<'a> {
    /// Parses `arn:aws:s3:REGION:ACCOUNT:accesspoint/NAME`, or with a colon before the name. A
    /// multi-region access point has no region, and its alias in place of a name.
    ///
    /// # Errors
    /// Why it is not an access point.
    pub fn parse(arn: &'a str) -> Result<Self, String> {
        let mut parts = arn.splitn(6, ':');
        let mut next = || parts.next().ok_or("the ARN is incomplete");
        let (_, partition, service, region) = (next()?, next()?, next()?, next()?);
        let (account, resource) = (next()?, next()?);
        let kind_end = resource.find([':', '/']).unwrap_or(resource.len());
        let name = resource[kind_end..].get(1..).unwrap_or("");
        check_kind(service, &resource[..kind_end], region, account, name)?;
        let is_word = |text: &str, fits: fn(u8) -> bool| {
            !text.is_empty() && text.bytes().all(fits) && !text.ends_with('-')
        };
        let fits = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
        let is_multi_region = region.is_empty();
        if !is_multi_region && !is_word(region, fits) {
            return Err("the ARN has no valid region".to_owned());
        }
        let known = if is_multi_region { partition } else { Partition::of(region).name };
        if known != partition {
            return Err(format!("the ARN's partition is wrong for {region}, which is in {known}"));
        }
        if account.len() != ACCOUNT_DIGITS || !is_word(account, |byte| byte.is_ascii_digit()) {
            return Err("the account in the ARN must have 12 digits".to_owned());
        }
        let is_label = |label: &str| is_word(label, fits) && !label.starts_with('-');
        let is_short_label = |label: &str| is_label(label) && label.len() <= LABEL_BYTES_MAX;
        if is_multi_region && !name.is_empty() && !name.ends_with(ALIAS_END) {
            return Err("without a region it is the ARN of a multi-region access point, whose \
                        alias ends in .mrap: give the region, or the alias"
                .to_owned());
        }
        if is_multi_region && !name.split('.').all(is_short_label) {
            return Err("a multi-region access point is named by its alias, such as \
                        mfzwi23gnjvgw.mrap: lower-case letters, digits, hyphens and dots"
                .to_owned());
        }
        if !is_multi_region && (!is_label(name) || name.len() > NAME_BYTES_MAX) {
            return Err("an access point's name has lower-case letters, digits and hyphens, at \
                        most 50"
                .to_owned());
        }
        Ok(Self { partition, region, account, name })
    }

    /// True for an access point of buckets in several regions.
    #[must_use]
    pub const fn is_multi_region(&self) -> bool {
        self.region.is_empty()
    }
}

/// Refuses anything but an `accesspoint` of S3, and says what it is.
fn check_kind(
    service: &str,
    kind: &str,
    region: &str,
    account: &str,
    name: &str,
) -> Result<(), String> {
    let refuse = |why: &str| Err(why.to_owned());
    match (service, kind) {
        ("s3-outposts", _) => refuse("S3 on Outposts is not supported"),
        ("s3-object-lambda", _) => refuse(
            "Object Lambda access points are not supported; give the bucket, or an ordinary \
             access point",
        ),
        ("s3express", _) => refuse(
            "it is the ARN of a directory bucket; give its name or its access point, such as \
             s3://NAME--usw2-az1--x-s3",
        ),
        ("s3", _) if region.is_empty() && account.is_empty() => {
            refuse("it is the ARN of a bucket; give the bucket name")
        }
        ("s3", "accesspoint") if !region.is_empty() && name.ends_with(ALIAS_END) => refuse(
            "the ARN of a multi-region access point has no region: \
             arn:aws:s3::ACCOUNT:accesspoint:ALIAS.mrap",
        ),
        ("s3", "accesspoint") => Ok(()),
        _ => refuse("it is not the ARN of an S3 access point"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The example of
    /// <https://docs.aws.amazon.com/AmazonS3/latest/userguide/access-points-alias.html>.
    #[test]
    fn access_points_are_taken_apart() {
        for arn in [
            "arn:aws:s3:us-west-2:123456789012:accesspoint/test",
            "arn:aws:s3:us-west-2:123456789012:accesspoint:test",
        ] {
            let (partition, region, account) = ("aws", "us-west-2", "123456789012");
            let point = AccessPoint { partition, region, account, name: "test" };
            assert!(!point.is_multi_region());
            assert_eq!(AccessPoint::parse(arn), Ok(point));
            assert_eq!(split(arn), Ok((arn, "")));
            assert_eq!(split(&format!("{arn}/")), Ok((arn, "")));
            assert_eq!(split(&format!("{arn}/a/b:c")), Ok((arn, "a/b:c")));
        }
        let china = "arn:aws-cn:s3:cn-north-1:123456789012:accesspoint:my-endpoint";
        assert_eq!(AccessPoint::parse(china).map(|point| point.name), Ok("my-endpoint"));
    }

    #[test]
    fn multi_region_access_points_have_no_region() {
        for name in ["mfzwi23gnjvgw.mrap", "my.endpoint.mrap"] {
            for separator in [':', '/'] {
                let arn = format!("arn:aws:s3::123456789012:accesspoint{separator}{name}");
                let (partition, region, account) = ("aws", "", "123456789012");
                let point = AccessPoint { partition, region, account, name };
                assert_eq!(AccessPoint::parse(&arn), Ok(point));
                assert!(point.is_multi_region());
                assert_eq!(split(&format!("{arn}/a/b:c")), Ok((&*arn, "a/b:c")));
                assert_eq!(split(&arn), Ok((&*arn, "")));
            }
        }
        let china = "arn:aws-cn:s3::123456789012:accesspoint:x.mrap";
        assert_eq!(AccessPoint::parse(china).map(|point| point.partition), Ok("aws-cn"));
    }

    #[test]
    fn others_are_refused_by_name() {
        let check = |arn: &str, expected: &str| {
            let why = split(arn).expect_err("not an access point");
            assert!(why.contains(expected), "{arn}: {why}");
        };
        check("arn:aws:s3:::bucket/key", "the ARN of a bucket");
        check("arn:aws:s3:us-west-2:123456789012:accesspoint:x.mrap/k", "has no region");
        check("arn:aws:s3::12345678901:accesspoint:x.mrap/k", "12 digits");
        check("arn:aws:s3:::accesspoint:x.mrap/k", "the ARN of a bucket");
        for name in ["", "A.mrap", "x..mrap", "-x.mrap", "x-.mrap", "x_y.mrap", "x@y.mrap"] {
            check(&format!("arn:aws:s3::123456789012:accesspoint:{name}/k"), "by its alias");
        }
        // botocore 1.43.67 takes such names, whose hosts no server has.
        for name in ["myendpoint", "my.bucket", "x.mrap:y", "mrap"] {
            check(&format!("arn:aws:s3::123456789012:accesspoint/{name}/k"), "give the region");
        }
        let long = "x".repeat(LABEL_BYTES_MAX + 1);
        check(&format!("arn:aws:s3::123456789012:accesspoint:{long}.mrap"), "by its alias");
        check("arn:aws:s3-outposts:us-east-1:123456789012:outpost/op-1/accesspoint/r", "Outposts");
        check("arn:aws:s3-object-lambda:us-east-1:123456789012:accesspoint/p", "Object Lambda");
        check("arn:aws:s3express:us-west-2:123456789012:bucket/b--usw2-az1--x-s3", "directory");
        check(
            "arn:aws:s3:us-west-2:123456789012:bucket_name:b",
            "not the ARN of an S3 access point",
        );
        check(
            "arn:aws:not-s3:us-west-2:123456789012:accesspoint:b",
            "not the ARN of an S3 access point",
        );
        check("arn:aws:s3:us-west-2:123456789012:accesspoint:", "access point's name");
        check("arn:aws:s3:us-west-2:123456789012:accesspoint", "access point's name");
        check("arn:aws:s3:us-west-2:123456789012:accesspoint:a:b", "access point's name");
        check("arn:aws:s3:us-west-2:123456789012:accesspoint:ap_name", "access point's name");
        check("arn:aws:s3:us-west-2:123456_789012:accesspoint:ap", "12 digits");
        check("arn:aws:s3:us-west -2:123456789012:accesspoint:ap", "no valid region");
        check("arn:aws:s3:evil.com/x:123456789012:accesspoint:ap", "no valid region");
        check("arn:aws:s3:cn-north-1:123456789012:accesspoint:ap", "which is in aws-cn");
        check("arn:aws:s3:us-west-2", "incomplete");
    }
}
