//! S3 Access Grants: keys for a part of a bucket, asked for before its first request, replaced
//! before they expire.
//!
//! They sign every request of their part, on both planes. The answers are parsed in
//! [`crate::s3::grants`].

use std::cell::{OnceCell, RefCell};
use std::collections::VecDeque;
use std::sync::Arc;

use tokio::sync::Mutex;
use tracing::info;

use super::credentials::CredentialSource;
use crate::control::client::{Answer, Client, Question};
use crate::control::endpoint::EndpointUrl;
use crate::control::limits::{GRANT_REFUSALS_MAX, GRANTS_MAX};
use crate::control::settings::Settings;
use crate::control::{Control, refusal, server_error};
use crate::error::{Error, ErrorKind, ErrorReason, Result};
use crate::s3::Endpoint;
use crate::s3::grants::{
    CALLER_QUERY, GRANT_ANSWER_BYTES_MAX, Grant, GrantTarget, data_access_query, includes,
    instance_query, parse_caller, parse_data_access, parse_instance,
};
use crate::s3::sign::{PublishedKeys, SigningKeys};
use crate::s3::uri::shown;
use crate::text::instant::instant_text;

/// The services that are asked, by their names in settings.
const STS: &str = "sts";
const S3_CONTROL: &str = "s3_control";

/// All targets.
const EVERYTHING: &str = "s3://*";

/// Where the keys of buckets come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AccessGrants {
    /// From access grants alone.
    Only,
    /// From access grants, and where one cannot be had the run's own keys.
    Fallback,
}

/// How access grants are asked for, and what is known of them.
#[derive(Debug)]
pub(in crate::control) struct Grants {
    mode: AccessGrants,
    /// It verifies certificates whatever the run does: the answers are keys.
    client: Client,
    /// The services' URLs by environment and profile; `None`: at AWS.
    sts: Option<EndpointUrl>,
    s3_control: Option<EndpointUrl>,
    /// The caller's account.
    caller: OnceCell<String>,
    /// Held during a request for a grant: others wait for its result.
    pub(in crate::control) asking: Mutex<()>,
    /// Targets for which the run's own keys are used, the latest last; or [`EVERYTHING`].
    refused: RefCell<VecDeque<String>>,
}

impl Grants {
    /// # Errors
    /// [`ErrorKind::Usage`] if requests are not signed, or if the URL of a service is not one.
    pub(in crate::control) fn new(
        mode: AccessGrants,
        source: &CredentialSource,
        settings: &Settings,
        client: Client,
    ) -> Result<Self> {
        if matches!(source, CredentialSource::Anonymous) {
            let message = "access grants need credentials, but requests are not signed";
            return Err(Error::new(ErrorKind::Usage, message)
                .advise("omit either --access-grants or --no-sign-request"));
        }
        let url = |service| {
            let found = settings.endpoint_url(service)?;
            found.map(|found| EndpointUrl::parse(&found.value, Some(&found.from))).transpose()
        };
        let (sts, s3_control) = (url(STS)?, url(S3_CONTROL)?);
        let (caller, asking, refused) = (OnceCell::new(), Mutex::default(), RefCell::default());
        Ok(Self { mode, client, sts, s3_control, caller, asking, refused })
    }

    /// True if the run's own keys are used for this target. That a folder has no grant says nothing
    /// of what is in it.
    pub(in crate::control) fn has_refused(&self, target: &str) -> bool {
        self.refused.borrow().iter().any(|refused| [target, EVERYTHING].contains(&&**refused))
    }

    fn note_refused(&self, target: String) {
        let mut refused = self.refused.borrow_mut();
        if refused.len() == GRANT_REFUSALS_MAX {
            refused.pop_front();
        }
        refused.push_back(target);
    }
}

impl Control {
    /// Gives the endpoint the keys of a grant for this target; without one, where the run's own
    /// keys may be used, it stays as it is.
    pub(in crate::control) async fn take_grant(
        &self,
        grants: &Grants,
        endpoint: &mut Endpoint,
        about: GrantTarget<'_>,
    ) -> Result<()> {
        let target = about.within(&endpoint.bucket);
        if grants.has_refused(&target) {
            return Ok(());
        }
        match self.find_grant(grants, endpoint, &target, about).await {
            Ok((grant, keys)) => {
                let published = PublishedKeys::new(Some(keys));
                published.set_outlook(outlook(&grant));
                endpoint.session = Some(Arc::new(published));
                endpoint.grant = Some(grant);
                Ok(())
            }
            Err(error)
                if grants.mode == AccessGrants::Fallback && error.kind() != ErrorKind::Usage =>
            {
                info!("{error}: the run's own credentials are used");
                // A service that gives no answer would be waited for again at each target.
                let is_of_target = error.kind() == ErrorKind::Access;
                grants.note_refused(if is_of_target { target } else { EVERYTHING.to_owned() });
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Replaces the keys of an endpoint by newer ones of its grant.
    pub(in crate::control) async fn renew_grant(
        &self,
        endpoint: &Endpoint,
        session: &PublishedKeys,
        old: &Grant,
    ) -> Result<()> {
        let Some(grants) = &self.grants else { return Ok(()) };
        let (new, keys) = self.ask_data_access(grants, &endpoint.region, old.clone()).await?;
        // All objects of the old grant are read with these keys.
        if !includes(&new.scope, &old.scope) {
            let message = format!(
                "the access grant of {} is replaced by one of {}",
                shown(&old.scope),
                shown(&new.scope)
            );
            return Err(Error::new(ErrorKind::Access, message).advise("run the command again"));
        }
        session.set_outlook(outlook(&new));
        session.publish(Some(keys));
        Ok(())
    }

    async fn find_grant(
        &self,
        grants: &Grants,
        endpoint: &Endpoint,
        target: &str,
        about: GrantTarget<'_>,
    ) -> Result<(Grant, SigningKeys)> {
        let known = self.endpoints();
        let mut known = known.iter().filter_map(|known| Some((known, known.grant.as_ref()?)));
        if known.clone().count() >= GRANTS_MAX {
            let message = format!("more than {GRANTS_MAX} access grants are needed");
            return Err(Error::new(ErrorKind::Usage, message)
                .advise("give fewer sources, or ask for a grant of a common prefix"));
        }
        let of_bucket = known.find(|(known, _)| known.bucket == endpoint.bucket);
        let account = match of_bucket {
            Some((_, grant)) => grant.account.clone(),
            None => self.find_account(grants, &endpoint.region, target).await?,
        };
        let is_object = matches!(about, GrantTarget::Object(_));
        let asked = Grant { account, target: target.to_owned(), is_object, scope: String::new() };
        self.ask_data_access(grants, &endpoint.region, asked).await
    }

    /// The account whose Access Grants instance has this target.
    async fn find_account(&self, grants: &Grants, region: &str, target: &str) -> Result<String> {
        let caller = self.find_caller(grants).await?;
        let what = format!("find the access grants of {} in {region}", shown(target));
        let query = instance_query(target);
        let answer = self.ask_s3_control(grants, (&caller, region), query, &what).await?;
        match answer.status {
            200 => parse_instance(&answer.body).map_err(|error| error.within(&what)),
            // Who may only ask for keys is mostly of the account that grants them.
            401 | 403 | 404 => {
                info!("{what}: {}: asking account {caller}", server_error(&answer));
                Ok(caller)
            }
            _ => Err(refusal(&answer, &what)),
        }
    }

    /// The caller's account, by STS.
    async fn find_caller(&self, grants: &Grants) -> Result<String> {
        if let Some(known) = grants.caller.get() {
            return Ok(known.clone());
        }
        let what = "find the account of the credentials";
        let endpoint = self.service.place_sts(grants.sts.as_ref(), &self.region)?;
        let question = Question::of_bucket(CALLER_QUERY.to_owned(), GRANT_ANSWER_BYTES_MAX);
        let answer = self.ask_service(grants, &endpoint, &question, (STS, what)).await?;
        if answer.status != 200 {
            return Err(refusal(&answer, what));
        }
        let caller = parse_caller(&answer.body).map_err(|error| error.within(what))?;
        Ok(grants.caller.get_or_init(|| caller).clone())
    }

    /// Asks for the keys of a grant; its scope is what the answer says.
    async fn ask_data_access(
        &self,
        grants: &Grants,
        region: &str,
        asked: Grant,
    ) -> Result<(Grant, SigningKeys)> {
        let Grant { account, target, is_object, .. } = &asked;
        let what = format!(
            "get access to {} by the access grants of account {account} in {region}",
            shown(target)
        );
        let query = data_access_query(target, *is_object);
        let answer = self.ask_s3_control(grants, (account, region), query, &what).await?;
        let error = server_error(&answer);
        match answer.status {
            200 => {}
            404 => return Err(no_grant(error.to_string(), what)),
            403 if error.code == "AccessDenied" => return Err(no_grant(error.to_string(), what)),
            _ => return Err(refusal(&answer, &what)),
        }
        let (keys, scope) = parse_data_access(&answer.body).map_err(|error| error.within(&what))?;
        if !includes(&scope, target) {
            return Err(no_grant(format!("the grant is of {} instead", shown(&scope)), what));
        }
        let until = keys.expires().and_then(instant_text).unwrap_or_default();
        info!("access grant: {} of account {account}, until {until}", shown(&scope));
        Ok((Grant { scope, ..asked }, keys))
    }

    async fn ask_s3_control(
        &self,
        grants: &Grants,
        (account, region): (&str, &str),
        query: String,
        what: &str,
    ) -> Result<Answer> {
        let url = grants.s3_control.as_ref();
        let endpoint = self.service.place_s3_control(url, account, region)?;
        let mut question = Question::of_bucket(query, GRANT_ANSWER_BYTES_MAX);
        // The service demands a checksum, here of no bytes.
        let account = account.to_owned().into();
        question.headers =
            vec![("x-amz-account-id", account), ("x-amz-checksum-crc32", "AAAAAA==".into())];
        self.ask_service(grants, &endpoint, &question, (S3_CONTROL, what)).await
    }

    async fn ask_service(
        &self,
        grants: &Grants,
        endpoint: &Endpoint,
        question: &Question,
        (service, what): (&str, &str),
    ) -> Result<Answer> {
        let advise = |error: Error| {
            let setting = format!("AWS_ENDPOINT_URL_{}", service.to_uppercase());
            let advice = format!("check the network, --region and {setting}");
            match error.kind() {
                ErrorKind::Endpoint => error.advise(endpoint.advice(&advice)),
                _ => error,
            }
        };
        let named = self.names.resolve(endpoint, self.client.retry_budget()).await;
        named.map_err(|error| advise(error).within(what))?;
        self.ask_by_own_keys(&grants.client, endpoint, question, what).await.map_err(advise)
    }
}

/// The error that there is no grant.
fn no_grant(why: String, what: String) -> Error {
    Error::new(ErrorKind::Access, why).because(ErrorReason::PermissionDenied).within(what).advise(
        "the credentials need s3:GetDataAccess and a grant with READ for this prefix (a folder \
         ends in a slash); --access-grants=fallback uses the credentials themselves instead",
    )
}

/// Where the keys of an endpoint come from, in words.
fn outlook(grant: &Grant) -> String {
    let scope = shown(&grant.scope);
    format!("the keys are from the access grant {scope} of account {}", grant.account)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::loopback::{Reply, Server, run};
    use crate::control::{ControlOptions, ListQuery};
    use crate::s3::uri::S3Uri;
    use std::rc::Rc;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::time::{Duration, SystemTime, UNIX_EPOCH};

    const CALLER: &str = "111122223333";
    const OWNER: &str = "444455556666";

    /// 2100-01-01T00:00:00Z plus `seconds`.
    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(4_102_444_800 + seconds)
    }

    fn is_for(head: &str, path: &str) -> bool {
        head.split(' ').nth(1).is_some_and(|target| target.starts_with(path))
    }

    const DATA_ACCESS: &str = "/v20180820/accessgrantsinstance/dataaccess?";
    const INSTANCE: &str = "/v20180820/accessgrantsinstance/prefix?";

    /// What was asked for.
    fn target_of(head: &str) -> String {
        let rest = head.split("target=").nth(1).unwrap_or_default();
        let encoded = rest.split(['&', ' ']).next().unwrap_or_default();
        percent_encoding::percent_decode_str(encoded).decode_utf8_lossy().into_owned()
    }

    /// Keys of a grant until this minute after 2100.
    fn given(key: &str, scope: &str, minute: u64) -> Reply {
        Reply::new(
            200,
            format!(
                "<GetDataAccessResult><Credentials><AccessKeyId>{key}</AccessKeyId>\
                 <SecretAccessKey>GIVEN</SecretAccessKey><SessionToken>T-{key}</SessionToken>\
                 <Expiration>2100-01-01T00:{minute:02}:00Z</Expiration></Credentials>\
                 <MatchedGrantTarget>{scope}</MatchedGrantTarget></GetDataAccessResult>"
            ),
        )
    }

    fn denied() -> Reply {
        Reply::new(
            403,
            "<ErrorResponse><Error><Code>AccessDenied</Code><Message>You do not have READ \
             permissions to the requested S3 Prefix</Message></Error></ErrorResponse>",
        )
    }

    /// STS, and S3 Control of two accounts, which answers requests for keys like this.
    fn services(answer: impl Fn(&str) -> Reply + Send + Sync + 'static) -> Server {
        Server::start(move |head| {
            if is_for(head, "/?Action=GetCallerIdentity&Version=2011-06-15") {
                return Reply::new(
                    200,
                    format!(
                        "<GetCallerIdentityResponse><GetCallerIdentityResult><Account>{CALLER}\
                         </Account></GetCallerIdentityResult></GetCallerIdentityResponse>"
                    ),
                );
            }
            if is_for(head, INSTANCE) {
                return Reply::new(
                    200,
                    format!(
                        "<GetAccessGrantsInstanceForPrefixResult><AccessGrantsInstanceArn>\
                         arn:aws:s3:us-east-1:{OWNER}:access-grants/default\
                         </AccessGrantsInstanceArn></GetAccessGrantsInstanceForPrefixResult>"
                    ),
                );
            }
            answer(head)
        })
    }

    /// Grants the folders a and b, with keys of their own until minute 5.
    fn of_folders(head: &str) -> Reply {
        match target_of(head).as_str() {
            target if target.starts_with("s3://bkt/a/") => given("A", "s3://bkt/a/*", 5),
            target if target.starts_with("s3://bkt/b/") => given("B", "s3://bkt/b/*", 5),
            _ => denied(),
        }
    }

    /// A bucket that answers whoever signs.
    fn bucket() -> Server {
        Server::start(|head| match head.contains("\r\nauthorization:") {
            true if head.starts_with("HEAD") => Reply::new(404, ""),
            true => Reply::new(200, Server::page(&[("a/k", 1)], None)),
            false => Reply::new(403, ""),
        })
    }

    fn options(services: &Server, bucket: &Server, mode: AccessGrants) -> ControlOptions {
        let url = format!("http://{}", services.address);
        let variables =
            [("AWS_ENDPOINT_URL_STS", url.as_str()), ("AWS_ENDPOINT_URL_S3_CONTROL", url.as_str())];
        let settings = Settings::of(&variables, &[], None).expect("words");
        ControlOptions {
            endpoint_url: Some(format!("http://{}", bucket.address)),
            region: Some("us-east-1".to_owned()),
            credentials: CredentialSource::Fixed(
                SigningKeys::new("OWN", "hunter2", None, None).expect("good keys"),
            ),
            access_grants: Some(mode),
            settings: Some(Ok(Arc::new(settings))),
            ..ControlOptions::default()
        }
    }

    async fn control(services: &Server, bucket: &Server, mode: AccessGrants) -> Control {
        Control::new(options(services, bucket, mode)).await.expect("a control")
    }

    async fn listed(control: &Control, prefix: &str) -> Result<()> {
        control.list_page("bkt", &ListQuery::new(prefix)).await.map(drop)
    }

    fn signed_by(head: &str) -> &str {
        let key = head.split("Credential=").nth(1).unwrap_or_default();
        key.split('/').next().unwrap_or_default()
    }

    #[test]
    fn each_request_has_the_keys_of_its_grant_and_no_other() {
        let (services, bucket) = (services(of_folders), bucket());
        run(async {
            let control = control(&services, &bucket, AccessGrants::Only).await;
            // The first two wait for one answer.
            let both = tokio::join!(listed(&control, "a/x"), listed(&control, "a/"));
            assert_eq!(both, (Ok(()), Ok(())));
            listed(&control, "b/").await.expect("a page");
            assert_eq!(control.head("bkt", "b/k", "").await, Ok(None));
            let endpoint = async |key| {
                control.endpoint("bkt", GrantTarget::Object(key)).await.expect("it is known")
            };
            let (a, b) = (endpoint("a/k").await, endpoint("b/k").await);
            let scope = |endpoint: &Endpoint| endpoint.grant.clone().expect("a grant").scope;
            assert_eq!((scope(&a).as_str(), scope(&b).as_str()), ("s3://bkt/a/*", "s3://bkt/b/*"));
            assert!(control.has_met("bkt") && !control.has_met("other"));
        });
        let seen = services.seen();
        let paths: Vec<_> = seen.iter().map(|head| head.split(' ').nth(1).expect("one")).collect();
        let s3_prefix = format!("{INSTANCE}s3prefix=s3%3A%2F%2Fbkt%2Fa%2Fx");
        let keys_of = |target: &str| {
            format!(
                "{DATA_ACCESS}permission=READ&privilege=Default&target=s3%3A%2F%2Fbkt%2F{target}"
            )
        };
        let expected = [
            "/?Action=GetCallerIdentity&Version=2011-06-15",
            &s3_prefix,
            &keys_of("a%2Fx%2A"),
            &keys_of("b%2F%2A"),
        ];
        assert_eq!(paths, expected);
        for head in &seen {
            assert_eq!(signed_by(head), "OWN", "{head}");
        }
        assert!(seen[0].contains("/us-east-1/sts/aws4_request"), "{}", seen[0]);
        for (head, account) in seen[1..].iter().zip([CALLER, OWNER, OWNER]) {
            assert!(head.contains("/us-east-1/s3/aws4_request"), "{head}");
            assert!(head.contains(&format!("\r\nx-amz-account-id: {account}\r\n")), "{head}");
            assert!(head.contains(";x-amz-account-id;x-amz-checksum-crc32;"), "{head}");
        }
        let seen = bucket.seen();
        assert!(seen[0].starts_with("HEAD /bkt HTTP/1.1\r\n"), "{}", seen[0]);
        let mut signers: Vec<_> = seen.iter().map(|head| signed_by(head)).collect();
        signers.sort_unstable();
        assert_eq!(signers, ["", "A", "A", "B", "B"]);
        assert!(seen[1].contains("\r\nx-amz-security-token: T-A\r\n"), "{}", seen[1]);
    }

    #[test]
    fn keys_are_replaced_before_they_end_and_count_until_then() {
        let asked = AtomicU64::new(0);
        let services = services(move |_| match asked.fetch_add(1, Ordering::SeqCst) {
            0 => given("G0", "s3://bkt/a/*", 5),
            1 => denied(),
            2 => given("G2", "s3://bkt/a/*", 10),
            3 => given("G3", "s3://bkt/a/b*", 15),
            _ => given("G4", "s3://bkt/*", 15),
        });
        let bucket = bucket();
        run(async {
            let control = control(&services, &bucket, AccessGrants::Only).await;
            listed(&control, "a/b").await.expect("a page");
            let endpoint = control.endpoint("bkt", GrantTarget::Prefix("a/")).await.expect("known");
            let session = endpoint.session.clone().expect("keys of its own");
            let key = || session.get().expect("keys").access_key().to_owned();
            assert_eq!(control.refresh_if_needed(at(179)).await, Ok(false));
            assert_eq!(control.refresh_if_needed(at(180)).await, Ok(false), "refused");
            assert_eq!(key(), "G0");
            assert_eq!(control.refresh_if_needed(at(180)).await, Ok(true));
            assert_eq!(key(), "G2");
            // Objects of the old scope would be refused.
            let error = control.refresh_if_needed(at(600)).await.expect_err("a smaller scope");
            assert_eq!(error.kind(), ErrorKind::Access);
            let expected = "the access grant of s3://bkt/a/* is replaced by one of s3://bkt/a/b*";
            assert_eq!(error.message(), expected);
            assert_eq!(control.refresh_if_needed(at(600)).await, Ok(true));
            assert_eq!(key(), "G4");
            let outlook = "the keys are from the access grant s3://bkt/* of account 444455556666";
            assert_eq!(session.outlook(), outlook);
        });
    }

    #[test]
    fn keys_that_the_bucket_calls_expired_are_replaced() {
        let asked = AtomicU64::new(0);
        let services = services(move |_| {
            let number = asked.fetch_add(1, Ordering::SeqCst);
            given(&format!("G{number}"), "s3://bkt/a/*", 5)
        });
        let bucket = Server::start(|head| match signed_by(head) {
            "" => Reply::new(403, ""),
            "G1" => Reply::new(200, Server::page(&[], None)),
            _ => Reply::new(400, "<Error><Code>ExpiredToken</Code></Error>"),
        });
        run(async {
            let control = control(&services, &bucket, AccessGrants::Only).await;
            listed(&control, "a/").await.expect("a page");
        });
    }

    #[test]
    fn without_a_grant_there_is_an_error_or_the_own_keys_are_used() {
        let (services, bucket) = (services(of_folders), bucket());
        run(async {
            let only = control(&services, &bucket, AccessGrants::Only).await;
            let error = listed(&only, "c/").await.expect_err("no grant");
            assert_eq!(error.kind(), ErrorKind::Access);
            let line = error.to_string();
            for words in [
                "get access to s3://bkt/c/* by the access grants of account 444455556666 in \
                 us-east-1: ",
                "AccessDenied",
                "You do not have READ permissions",
                "need s3:GetDataAccess and a grant with READ",
                "--access-grants=fallback",
            ] {
                assert!(line.contains(words), "{words}: {line}");
            }
            assert!(bucket.seen().iter().all(|head| signed_by(head).is_empty()), "not the own");
            let fallback = control(&services, &bucket, AccessGrants::Fallback).await;
            for prefix in ["c/", "c/d", "a/", "c/"] {
                listed(&fallback, prefix).await.expect("a page");
            }
        });
        let seen = bucket.seen();
        let signers: Vec<_> = seen.iter().map(|head| signed_by(head)).collect();
        assert_eq!(signers, ["", "", "OWN", "OWN", "A", "OWN"]);
        let asked = services.seen();
        let targets: Vec<_> = asked.iter().map(|head| target_of(head)).collect();
        let is_of_c = |target: &&String| target.starts_with("s3://bkt/c/");
        let of_c: Vec<_> = targets.iter().filter(is_of_c).map(String::as_str).collect();
        // By the first run, and by the second each once.
        assert_eq!(of_c, ["s3://bkt/c/*", "s3://bkt/c/*", "s3://bkt/c/d*"]);
    }

    #[test]
    fn the_region_is_that_of_the_bucket_and_the_account_may_be_the_callers() {
        let services = Server::start(|head| match is_for(head, "/?Action=") {
            true => Reply::new(
                200,
                format!(
                    "<GetCallerIdentityResponse><GetCallerIdentityResult><Account>{CALLER}\
                     </Account></GetCallerIdentityResult></GetCallerIdentityResponse>"
                ),
            ),
            false if is_for(head, INSTANCE) => denied(),
            false => given("G", "s3://bkt/*", 5),
        });
        let bucket = Server::start(|head| match signed_by(head) {
            "" => Reply::new(403, "").header("x-amz-bucket-region", "eu-west-1"),
            _ => Reply::new(200, Server::page(&[], None)),
        });
        run(async {
            let control = control(&services, &bucket, AccessGrants::Only).await;
            listed(&control, "").await.expect("a page");
            let endpoint = control.endpoint("bkt", GrantTarget::Prefix("")).await.expect("known");
            assert_eq!(endpoint.grant.as_ref().expect("a grant").account, CALLER);
        });
        let seen = services.seen();
        assert!(seen[0].contains("/us-east-1/sts/aws4_request"), "{}", seen[0]);
        assert!(seen[2].contains("/eu-west-1/s3/aws4_request"), "{}", seen[2]);
        assert!(bucket.seen()[1].contains("/eu-west-1/s3/aws4_request"));
    }

    #[test]
    fn a_name_without_its_slash_is_the_folder_that_is_granted() {
        let (services, bucket) = (services(of_folders), bucket());
        run(async {
            let control = Rc::new(control(&services, &bucket, AccessGrants::Only).await);
            let resolve = async |text| {
                let uri = S3Uri::parse(text).expect("an address");
                control.resolve(&uri).await
            };
            let source = resolve("s3://bkt/a").await.expect("the folder");
            assert_eq!(source.endpoint.grant.as_ref().expect("a grant").scope, "s3://bkt/a/*");
            let error = resolve("s3://bkt/c").await.expect_err("no grant");
            assert!(error.to_string().contains("get access to s3://bkt/c by"), "{error}");
        });
        let seen = services.seen();
        assert!(seen[2].contains("&targetType=Object"), "{}", seen[2]);
        assert!(!seen[3].contains("&targetType"), "{}", seen[3]);
    }

    #[test]
    fn what_is_refused_is_not_called_missing_nor_the_reverse() {
        let services = services(|head| match target_of(head).as_str() {
            "s3://bkt/o/k" => given("K", "s3://bkt/o/k", 5),
            _ => of_folders(head),
        });
        let bucket = Server::start(|head| match head.contains("\r\nauthorization:") {
            true if is_for(head, "/bkt/a/x") => Reply::new(403, ""),
            true if head.starts_with("HEAD") => Reply::new(404, ""),
            true => Reply::new(200, Server::page(&[], None)),
            false => Reply::new(403, ""),
        });
        run(async {
            let control = Rc::new(control(&services, &bucket, AccessGrants::Only).await);
            for (text, kind, words) in [
                ("s3://bkt/a/x", ErrorKind::Access, "head s3://bkt/a/x"),
                ("s3://bkt/o/k", ErrorKind::NotFound, "there is no object with this key"),
            ] {
                let uri = S3Uri::parse(text).expect("an address");
                let error = control.resolve(&uri).await.map(drop).expect_err(text);
                assert_eq!(error.kind(), kind, "{error}");
                assert!(error.to_string().contains(words), "{error}");
            }
        });
    }

    #[test]
    fn a_service_that_gives_no_keys_at_all_is_asked_once() {
        let (services, bucket) = (Server::start(|_| Reply::new(400, "")), bucket());
        run(async {
            let control = control(&services, &bucket, AccessGrants::Fallback).await;
            for prefix in ["c/", "d/"] {
                listed(&control, prefix).await.expect("a page");
            }
        });
        assert_eq!(services.seen().len(), 1);
    }

    #[test]
    fn other_answers_are_errors_that_name_their_service() {
        let check = |reply: fn() -> Reply, kind: ErrorKind, expected: &str| {
            let (services, bucket) = (services(move |_| reply()), bucket());
            run(async {
                let control = control(&services, &bucket, AccessGrants::Only).await;
                let error = listed(&control, "a/").await.expect_err(expected);
                assert_eq!(error.kind(), kind, "{error}");
                let line = format!("{error} {error:?}");
                assert!(line.contains(expected), "{line}");
                assert!(!line.contains("GIVEN") && !line.contains("hunter2"), "{line}");
            });
            assert_eq!(bucket.seen().len(), 1);
        };
        let other = || given("G", "s3://bkt/b/*", 5);
        check(other, ErrorKind::Access, "the grant is of s3://bkt/b/* instead");
        let half = || Reply::new(200, "<GetDataAccessResult><Credentials><SecretAccessKey>GIVEN");
        check(half, ErrorKind::Endpoint, "the answer of S3 Access Grants cannot be read");
        let none = || Reply::new(404, "<Error><Code>AccessGrantsInstanceNotExists</Code></Error>");
        check(none, ErrorKind::Access, "AccessGrantsInstanceNotExists");
        let wrong = || Reply::new(403, "<Error><Code>SignatureDoesNotMatch</Code></Error>");
        check(wrong, ErrorKind::Access, "SignatureDoesNotMatch");
    }

    #[test]
    fn grants_are_bounded() {
        let services = services(|head| {
            let target = target_of(head);
            given("G", &target, 5)
        });
        let bucket = bucket();
        run(async {
            let control = control(&services, &bucket, AccessGrants::Only).await;
            for number in 0..GRANTS_MAX {
                listed(&control, &format!("{number}/")).await.expect("a page");
            }
            let error = listed(&control, "more/").await.expect_err("one more");
            assert_eq!(error.kind(), ErrorKind::Usage);
            assert!(error.to_string().contains("more than 64 access grants"), "{error}");
            let grants = control.grants.as_ref().expect("grants");
            (0..2 * GRANT_REFUSALS_MAX).for_each(|at| grants.note_refused(format!("s3://{at}")));
            assert_eq!(grants.refused.borrow().len(), GRANT_REFUSALS_MAX);
        });
    }

    #[test]
    fn what_grants_are_not_for_is_a_usage_error() {
        let (services, bucket) = (services(of_folders), bucket());
        run(async {
            let options = options(&services, &bucket, AccessGrants::Fallback);
            let anonymous = CredentialSource::Anonymous;
            let unsigned = ControlOptions { credentials: anonymous, ..options.clone() };
            let error = Control::new(unsigned).await.map(drop).expect_err("no keys");
            assert_eq!(error.kind(), ErrorKind::Usage);
            let control = Control::new(options).await.expect("a control");
            for name in [
                "lab--use1-az4--x-s3",
                "arn:aws:s3:us-east-1:111122223333:accesspoint/point",
                "arn:aws:s3::111122223333:accesspoint/mfzwi23gnjvgw.mrap",
            ] {
                let error = control.list_page(name, &ListQuery::new("")).await.expect_err(name);
                assert_eq!(error.kind(), ErrorKind::Usage, "{error}");
                assert!(error.to_string().contains("access grants are of buckets"), "{error}");
            }
        });
        assert!(services.seen().is_empty() && bucket.seen().is_empty());
    }

    #[test]
    fn services_are_asked_at_aws_by_account_and_region() {
        let service = crate::control::Service::default();
        let host = |url: Option<&str>, region: &str| {
            let url = url.map(|url| EndpointUrl::parse(url, None).expect("a URL"));
            let placed = service.place_s3_control(url.as_ref(), OWNER, region).expect("a place");
            format!("{} {}{}", placed.tls, placed.host, placed.path_prefix)
        };
        let aws = host(None, "eu-west-1");
        assert_eq!(aws, "true 444455556666.s3-control.eu-west-1.amazonaws.com/");
        assert_eq!(host(Some("http://h:1/x"), "r"), "false 444455556666.h:1/x/");
        assert_eq!(host(Some("http://127.0.0.1:1"), "r"), "false 127.0.0.1:1/");
        let sts = service.place_sts(None, "cn-north-1").expect("a place");
        assert_eq!(sts.host, "sts.cn-north-1.amazonaws.com.cn");
    }
}
