//! ARNs of access points, which may replace a bucket's name.
//!
//! Pure. Any other kind of ARN is refused with its name.

use crate::s3::aws::Partition;

/// Prefix of every ARN.
pub(crate) const ARN: &str = "arn:";
/// Longest name of an access point, in bytes.
const NAME_BYTES_MAX: usize = 50;
/// Digits of an account.
const ACCOUNT_DIGITS: usize = 12;

/// An access point of a general purpose bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AccessPoint<'a> {
    /// Its region, for which requests are signed.
    pub region: &'a str,
    /// Its owner's account.
    pub account: &'a str,
    /// Its name.
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
    /// Parses `arn:aws:s3:REGION:ACCOUNT:accesspoint/NAME`, or with a colon before the name.
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
        if !is_word(region, |byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-')) {
            return Err("the ARN has no valid region".to_owned());
        }
        let known = Partition::of(region).name;
        if known != partition {
            return Err(format!("the ARN's partition is wrong for {region}, which is in {known}"));
        }
        if account.len() != ACCOUNT_DIGITS || !is_word(account, |byte| byte.is_ascii_digit()) {
            return Err("the account in the ARN must have 12 digits".to_owned());
        }
        let fits = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
        if !is_word(name, fits) || name.starts_with('-') || name.len() > NAME_BYTES_MAX {
            return Err("an access point's name has lower-case letters, digits and hyphens, at \
                        most 50"
                .to_owned());
        }
        Ok(Self { region, account, name })
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
        ("s3", "accesspoint") if region.is_empty() || name.ends_with(".mrap") => refuse(
            "multi-region access points are not supported: they need SigV4A \
             signatures; give one of their buckets, or its access point",
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
            let point = AccessPoint { region: "us-west-2", account: "123456789012", name: "test" };
            assert_eq!(AccessPoint::parse(arn), Ok(point));
            assert_eq!(split(arn), Ok((arn, "")));
            assert_eq!(split(&format!("{arn}/")), Ok((arn, "")));
            assert_eq!(split(&format!("{arn}/a/b:c")), Ok((arn, "a/b:c")));
        }
        let china = "arn:aws-cn:s3:cn-north-1:123456789012:accesspoint:my-endpoint";
        assert_eq!(AccessPoint::parse(china).map(|point| point.name), Ok("my-endpoint"));
    }

    #[test]
    fn others_are_refused_by_name() {
        let check = |arn: &str, expected: &str| {
            let why = split(arn).expect_err("not an access point");
            assert!(why.contains(expected), "{arn}: {why}");
        };
        check("arn:aws:s3:::bucket/key", "the ARN of a bucket");
        check("arn:aws:s3::123456789012:accesspoint:mfzwi23gnjvgw.mrap/k", "multi-region");
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
