//! The endpoints of a run: placed, resolved, and with keys of their own where they have some.

use std::sync::Arc;

use http::Method;
use tracing::info;

use super::is_region;
use crate::control::buckets::SERVICE;
use crate::control::client::Question;
use crate::control::{Control, dns};
use crate::error::{Error, ErrorKind, Result};
use crate::s3::Endpoint;
use crate::s3::answer::ERROR_BODY_BYTES_MAX;
use crate::s3::arn::ARN;
use crate::s3::aws::is_directory_bucket;
use crate::s3::grants::{GrantTarget, includes};
use crate::s3::sign::PublishedKeys;
use crate::s3::uri::shown;

impl Control {
    /// All known buckets' endpoints.
    #[must_use]
    pub fn endpoints(&self) -> Vec<Arc<Endpoint>> {
        self.endpoints.borrow().values().cloned().collect()
    }

    /// The bucket's endpoint, as far as known; its name is resolved once. With access grants its
    /// keys are for these objects.
    pub async fn endpoint(&self, bucket: &str, about: GrantTarget<'_>) -> Result<Arc<Endpoint>> {
        if let Some(known) = self.known(bucket, about) {
            return Ok(known);
        }
        let Some(grants) = self.grants.as_ref().filter(|_| bucket != SERVICE) else {
            return self.settle(bucket, about, &self.region).await;
        };
        // Others wait for the answer, which may be for them, too.
        let _asking = grants.asking.lock().await;
        if let Some(known) = self.known(bucket, about) {
            return Ok(known);
        }
        let region = self.region_of(bucket).await?;
        self.settle(bucket, about, &region).await
    }

    fn known(&self, bucket: &str, about: GrantTarget<'_>) -> Option<Arc<Endpoint>> {
        let endpoints = self.endpoints.borrow();
        let of_bucket = endpoints.get(bucket).cloned();
        let Some(grants) = self.grants.as_ref().filter(|_| bucket != SERVICE) else {
            return of_bucket;
        };
        let target = about.within(bucket);
        let granted = endpoints.values().filter(|endpoint| endpoint.bucket == bucket);
        let granted = granted.filter_map(|endpoint| Some((endpoint.grant.as_ref()?, endpoint)));
        let granted = granted.filter(|(grant, _)| includes(&grant.scope, &target));
        let nearest = granted.max_by_key(|(grant, _)| grant.scope.len());
        let nearest = nearest.map(|(_, endpoint)| Arc::clone(endpoint));
        nearest.or_else(|| of_bucket.filter(|_| grants.has_refused(&target)))
    }

    /// True if this error may be that an access grant does not reach so far.
    pub(in crate::control) fn may_lack_grant(&self, error: &Error) -> bool {
        self.grants.is_some() && error.kind() == ErrorKind::Access
    }

    /// True if requests about these objects have the keys of an access grant.
    pub(in crate::control) fn has_grant(&self, bucket: &str, about: GrantTarget<'_>) -> bool {
        self.known(bucket, about).is_some_and(|endpoint| endpoint.grant.is_some())
    }

    /// True if the bucket is known.
    pub(crate) fn has_met(&self, bucket: &str) -> bool {
        let endpoints = self.endpoints.borrow();
        let is_of_bucket = |endpoint: &Arc<Endpoint>| endpoint.bucket == bucket;
        endpoints.contains_key(bucket)
            || self.grants.is_some() && endpoints.values().any(is_of_bucket)
    }

    /// True for a directory bucket, which lists by folder only, and unordered.
    pub(crate) fn is_directory(bucket: &str) -> bool {
        !bucket.starts_with(ARN) && is_directory_bucket(bucket)
    }

    pub(in crate::control) async fn settle(
        &self,
        bucket: &str,
        about: GrantTarget<'_>,
        region: &str,
    ) -> Result<Arc<Endpoint>> {
        let mut endpoint = self.service.place(bucket, region)?;
        self.names.resolve(&endpoint, self.client.retry_budget()).await?;
        dns::interfaces::try_each(&self.interfaces, &endpoint).await?;
        match self.grants.as_ref().filter(|_| bucket != SERVICE) {
            Some(grants) => self.take_grant(grants, &mut endpoint, about).await?,
            None => self.open_session(&endpoint).await?,
        }
        info!(
            "bucket {bucket}: {}://{}{} in {}{}: {:?}",
            if endpoint.tls { "https" } else { "http" },
            endpoint.host,
            endpoint.path_prefix,
            if endpoint.is_multi_region() { "all regions" } else { &endpoint.region },
            if endpoint.proxy.is_some() { " by a proxy" } else { "" },
            endpoint.addresses(),
        );
        if self.grants.is_some()
            && endpoint.grant.is_none()
            && let Some(known) = self.endpoints.borrow().get(bucket)
            && known.region == endpoint.region
        {
            // Where there is no grant, all parts of the bucket have the run's own keys.
            return Ok(Arc::clone(known));
        }
        let name = match &endpoint.grant {
            Some(grant) => format!("{bucket} {}", grant.scope),
            None => bucket.to_owned(),
        };
        let endpoint = Arc::new(endpoint);
        self.endpoints.borrow_mut().insert(name, endpoint.clone());
        self.met.notify_waiters();
        Ok(endpoint)
    }

    /// The bucket's region before it has keys: that of its other grants, else what S3 says to a
    /// HEAD without a signature, which it may refuse. As in AWS's SDK for Go, it needs no
    /// permission, and shows no server the caller's name.
    async fn region_of(&self, bucket: &str) -> Result<String> {
        let is_of_bucket = |endpoint: &&Arc<Endpoint>| endpoint.bucket == bucket;
        if let Some(known) = self.endpoints.borrow().values().find(is_of_bucket) {
            return Ok(known.region.clone());
        }
        if bucket.starts_with(ARN) || is_directory_bucket(bucket) {
            let message = format!("s3://{}: access grants are of buckets alone", shown(bucket));
            return Err(Error::new(ErrorKind::Usage, message)
                .advise("name a general purpose bucket, or omit --access-grants"));
        }
        let endpoint = self.service.place(bucket, &self.region)?;
        self.names.resolve(&endpoint, self.client.retry_budget()).await?;
        let question = Question {
            method: Method::HEAD,
            ..Question::of_bucket(String::new(), ERROR_BODY_BYTES_MAX)
        };
        let what = format!("find the region of s3://{}", shown(bucket));
        let unsigned = PublishedKeys::new(None);
        let answer = self.client.ask(&endpoint, &question, &unsigned, &what).await;
        let answer = answer.map_err(|error| error.within(&what))?;
        let region = answer.header("x-amz-bucket-region").unwrap_or_default();
        let is_fit = is_region(self.service.url.as_ref(), region);
        Ok(if is_fit { region } else { &self.region }.to_owned())
    }
}
