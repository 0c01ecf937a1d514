//! Keys of a session of `aws login`: the session's file below HOME has them, and AWS's sign-in
//! service renews them for the holder of the session's private key.
//!
//! aws-config has this, too. But it takes the service's URL from the environment by itself, writes
//! the file in place and without the fields that it does not know, and needs a second library of
//! cryptography. File, request and endpoints are those of botocore 1.44 (2026-11); the proof of the
//! key is DPoP (RFC 9449).

use std::fmt::{self, Write as _};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_credential_types::Credentials;
use aws_credential_types::credential_feature::AwsCredentialFeature;
use aws_credential_types::provider::error::CredentialsError;
use aws_credential_types::provider::{self, ProvideCredentials, SharedCredentialsProvider, future};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use aws_smithy_types::body::SdkBody;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{HeaderValue, Request, Uri, header};
use rustls::pki_types::PrivateSec1KeyDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::{Map, Value, json};
use tokio::sync::Mutex;
use tokio::task::spawn_blocking;
use tokio::time::timeout;
use tracing::warn;
use zeroize::Zeroizing;

use super::chain_http::{ChainHttp, CredentialService};
use super::fields::{Fields, wipe};
use super::reasons::reason_of;
use super::roles::refuse;
use super::services::Services;
use super::tokens::to_log_in;
use crate::checksum::Algorithm;
use crate::control::endpoint::is_region_of_aws;
use crate::control::limits::{CREDENTIALS_TIMEOUT, REFRESH_AHEAD, RENEWAL_TIMEOUT};
use crate::control::settings::{LOGIN_SESSIONS, Settings, read_bounded};
use crate::error::{Error, ErrorKind, Result};
use crate::files::whole_file::write_private;
use crate::s3::uri::shown;
use crate::text::instant::instant_text;

/// The setting that `aws login` writes into a profile: who has logged in.
pub(super) const LOGIN: &str = "login_session";
/// The command that begins a session.
const COMMAND: &str = "aws login";
/// Prefix of the temporary name of a session's file.
const TEMPORARY_PREFIX: &str = ".inrush-login-";

/// Fields of a session.
const ACCESS_TOKEN: &str = "accessToken";
const REFRESH_TOKEN: &str = "refreshToken";
const CLIENT_ID: &str = "clientId";
const PRIVATE_KEY: &str = "dpopKey";
const SIGN_IN_REGION: &str = "signInRegion";
/// Fields of its access token.
const SESSION_TOKEN: &str = "sessionToken";
const EXPIRES_AT: &str = "expiresAt";
/// The field of an answer: for how many seconds its keys are valid.
const EXPIRES_IN: &str = "expiresIn";

/// The fields of keys, in a session and in an answer.
const KEYS: [&str; 3] = ["accessKeyId", "secretAccessKey", SESSION_TOKEN];
/// The field with the code of a refusal.
const CODE: &str = "error";
/// Codes of answers to a session that has ended.
const ENDED: [&str; 3] = ["TOKEN_EXPIRED", "USER_CREDENTIALS_CHANGED", "AUTHCODE_EXPIRED"];
/// The code of an answer to a user who may not renew keys.
const NOT_ALLOWED: &str = "INSUFFICIENT_PERMISSIONS";
/// What such a user needs: SignInLocalDevelopmentAccess is a policy that AWS manages.
const ALLOW: &str =
    "allow signin:CreateOAuth2Token, as the policy SignInLocalDevelopmentAccess does";

/// The provider in the library's messages.
const PROVIDER: &str = "Login";
/// Bytes of a coordinate of P-256.
const COORDINATE_BYTES: usize = 32;
/// Random bytes of a proof's identifier (RFC 9449 section 4.2 asks for 96 bits).
const IDENTIFIER_BYTES: usize = 16;

/// A session as its file has it, with fields that are not known here. It is wiped when it is
/// dropped.
#[derive(Clone)]
struct Session(Map<String, Value>);

impl Drop for Session {
    fn drop(&mut self) {
        wipe(&mut self.0);
    }
}

impl Session {
    /// `None` if the text is no JSON object. The parser's error may quote secrets.
    fn parse(text: &[u8]) -> Option<Self> {
        serde_json::from_slice(text).ok().map(Self)
    }

    fn text(&self, name: &str) -> Option<&str> {
        self.0.get(name).and_then(Value::as_str)
    }

    /// As its file has it.
    fn written(&self) -> Zeroizing<String> {
        Zeroizing::new(json!(&self.0).to_string())
    }

    /// The keys.
    ///
    /// # Errors
    /// What it lacks, without a value that could be secret.
    fn keys(&self) -> Result<Credentials, String> {
        let token = self.0.get(ACCESS_TOKEN).and_then(Value::as_object);
        let token = token.ok_or_else(|| format!("has no {ACCESS_TOKEN}"))?;
        let fields = Fields::of(token.clone(), "has");
        let mut keys = fields.keys(SESSION_TOKEN, EXPIRES_AT, PROVIDER)?;
        if keys.session_token().is_none() {
            return Err(format!("has no {SESSION_TOKEN}"));
        }
        if keys.expiry().is_none() {
            return Err(format!("has no {EXPIRES_AT}"));
        }
        keys.set_property(vec![AwsCredentialFeature::CredentialsProfileLogin]);
        Ok(keys)
    }

    /// The session with the keys of an answer.
    ///
    /// # Errors
    /// What the answer lacks, without a value of it.
    fn renewed(&self, answer: &[u8], now: SystemTime) -> Result<Self, String> {
        let mut answer = Self::parse(answer).ok_or_else(|| "is no JSON object".to_owned())?;
        let seconds = answer.0.get(EXPIRES_IN).and_then(Value::as_f64);
        let lasts = seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
        let ends = lasts.and_then(|lasts| now.checked_add(lasts));
        let ends = ends.and_then(instant_text).ok_or_else(|| format!("has no {EXPIRES_IN}"))?;
        let token = answer.0.remove(REFRESH_TOKEN).filter(Value::is_string);
        let token = token.ok_or_else(|| format!("has no {REFRESH_TOKEN}"))?;
        let mut given = answer.0.get_mut(ACCESS_TOKEN).and_then(Value::as_object_mut);
        let mut newer = self.clone();
        // The older keys have the user's account, too, which no answer has.
        let older = newer.0.entry(ACCESS_TOKEN).or_insert_with(|| json!({}));
        let older = older.as_object_mut().ok_or_else(|| format!("is for no {ACCESS_TOKEN}"))?;
        for name in KEYS {
            let key = given.as_mut().and_then(|given| given.remove(name));
            let key = key.filter(|key| key.as_str().is_some_and(|key| !key.is_empty()));
            older.insert(name.to_owned(), key.ok_or_else(|| format!("has no {name}"))?);
        }
        older.insert(EXPIRES_AT.to_owned(), ends.into());
        newer.0.insert(REFRESH_TOKEN.to_owned(), token);
        Ok(newer)
    }
}

/// The session of a profile.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Login {
    profile: String,
    file: PathBuf,
}

impl Login {
    /// The session of a profile with [`LOGIN`].
    ///
    /// # Errors
    /// [`ErrorKind::Access`] if there is no home folder.
    pub(super) fn of_profile(settings: &Settings, profile: &str) -> Result<Self> {
        let session = settings.of_profile(profile, LOGIN).unwrap_or_default();
        let Some(folder) = settings.place(LOGIN_SESSIONS) else {
            let folder = LOGIN_SESSIONS.1;
            let why = format!("has {LOGIN}, but HOME is not set: sessions are in ~/{folder}");
            return Err(refuse(settings, profile, LOGIN, &why).advise("set HOME"));
        };
        let mut name = String::new();
        for byte in Algorithm::Sha256.digest(session.as_bytes()).bytes() {
            write!(name, "{byte:02x}").expect("a string takes all");
        }
        Ok(Self { profile: profile.to_owned(), file: folder.join(name + ".json") })
    }

    pub(super) fn provider(self, services: &Services) -> SharedCredentialsProvider {
        SharedCredentialsProvider::new(KeysOfSession {
            login: self,
            http: services.http.of(CredentialService::SignIn),
            services: services.clone(),
            renewed: Mutex::default(),
            renewal_timeout: RENEWAL_TIMEOUT,
        })
    }

    /// True if there is no session any more.
    async fn is_gone(&self) -> bool {
        let path = self.file.clone();
        let found = spawn_blocking(move || path.metadata()).await.expect("no panic");
        found.is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
    }

    /// The session, as its file has it now: other programs renew it, too.
    async fn read(&self) -> Result<Session> {
        let path = self.file.clone();
        let read = spawn_blocking(move || read_bounded(&path)).await;
        let why = match read.expect("reading does not panic") {
            Ok(text) => match Session::parse(Zeroizing::new(text).as_bytes()) {
                Some(session) => return Ok(session),
                None => "it is no JSON object".to_owned(),
            },
            Err(error) => error.to_string(),
        };
        let why = format!("the session in {}: {why}", self.shown_file());
        Err(self.to_log_in(Error::new(ErrorKind::Access, why)))
    }

    fn keys(&self, session: &Session) -> Result<Credentials> {
        session.keys().map_err(|why| self.damaged(&why))
    }

    fn damaged(&self, why: &str) -> Error {
        let message = format!("the session in {} {why}", self.shown_file());
        self.to_log_in(Error::new(ErrorKind::Access, message))
    }

    fn shown_file(&self) -> String {
        shown(&self.file.to_string_lossy()).to_string()
    }

    fn to_log_in(&self, error: Error) -> Error {
        to_log_in(error, &self.profile, COMMAND)
    }
}

/// Gets the keys of a session, and renews them before they expire.
struct KeysOfSession {
    login: Login,
    http: ChainHttp,
    services: Services,
    /// The session as it was renewed last: its file may be on a read-only file system.
    renewed: Mutex<Option<Session>>,
    /// Longest wait for the service while the keys are valid.
    renewal_timeout: Duration,
}

impl fmt::Debug for KeysOfSession {
    /// Shows no session, which has secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeysOfSession").field("login", &self.login).finish_non_exhaustive()
    }
}

impl ProvideCredentials for KeysOfSession {
    fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        future::ProvideCredentials::new(self.ask())
    }
}

impl KeysOfSession {
    async fn ask(&self) -> provider::Result {
        let mut renewed = self.renewed.lock().await;
        let (keys, session) = self.newest(renewed.as_ref()).await.map_err(refused)?;
        if outlasts(&keys, REFRESH_AHEAD) {
            return Ok(keys);
        }
        // A service that does not answer must not keep valid keys from being used.
        let is_valid = outlasts(&keys, Duration::ZERO);
        let limit = if is_valid { self.renewal_timeout } else { CREDENTIALS_TIMEOUT };
        let error = match timeout(limit, self.renew(&session)).await {
            Ok(Ok(newer)) => {
                let keys = self.login.keys(&newer).map_err(refused)?;
                self.save(session, newer.clone()).await;
                *renewed = Some(newer);
                return Ok(keys);
            }
            Ok(Err(error)) => error,
            Err(_) => CredentialsError::provider_timed_out(limit),
        };
        // Another program may have renewed the session meanwhile.
        match self.newest(renewed.as_ref()).await {
            Ok((keys, _)) if outlasts(&keys, Duration::ZERO) => Ok(keys),
            _ => Err(error),
        }
    }

    /// The session of the file or the one renewed here, whose keys last longer. Without a file the
    /// user has logged out.
    async fn newest(&self, renewed: Option<&Session>) -> Result<(Credentials, Session)> {
        let with_keys = |session: Session| Ok((self.login.keys(&session)?, session));
        let of_file = self.login.read().await.and_then(with_keys);
        let Some(Ok(renewed)) = renewed.map(|session| with_keys(session.clone())) else {
            return of_file;
        };
        match of_file {
            Ok(of_file) if of_file.0.expiry() > renewed.0.expiry() => Ok(of_file),
            Err(error) if self.login.is_gone().await => Err(error),
            _ => Ok(renewed),
        }
    }

    /// The session with newer keys
    /// (<https://docs.aws.amazon.com/signin/latest/APIReference/API_CreateOAuth2Token.html>).
    async fn renew(&self, session: &Session) -> Result<Session, CredentialsError> {
        let text = |name| {
            session.text(name).ok_or_else(|| refused(self.login.damaged(&format!("has no {name}"))))
        };
        let key = PrivateSec1KeyDer::from_pem_slice(text(PRIVATE_KEY)?.as_bytes()).ok();
        let key = key.and_then(|key| {
            let key = key.secret_sec1_der();
            EcdsaKeyPair::from_private_key_der(&ECDSA_P256_SHA256_FIXED_SIGNING, key).ok()
        });
        let key = key.ok_or_else(|| {
            refused(self.login.damaged(&format!("has a {PRIVATE_KEY} that is no key of P-256")))
        })?;
        let region = session.text(SIGN_IN_REGION).filter(|region| !region.is_empty());
        if region.is_some_and(|region| !is_region_of_aws(region)) {
            let why = format!("has a {SIGN_IN_REGION} that is no region");
            return Err(refused(self.login.damaged(&why)));
        }
        let url: Uri = self.services.sign_in_url(region).parse().map_err(|_| {
            let setting = CredentialService::SignIn.name();
            refused(Error::new(ErrorKind::Usage, format!("the URL of {setting} is invalid")))
        })?;
        let body = json!({
            "clientId": text(CLIENT_ID)?,
            "grantType": "refresh_token",
            "refreshToken": text(REFRESH_TOKEN)?,
        });
        let body = Zeroizing::new(body.to_string());
        let request = || {
            // No request may have the proof of another one: without one the service refuses it.
            let proof = proof(&key, &url, crate::control::now());
            Request::post(&url)
                .header(header::CONTENT_TYPE, "application/json")
                .header(header::ACCEPT, "application/json")
                .header("DPoP", proof.unwrap_or_else(|| HeaderValue::from_static("")))
                .body(SdkBody::from(body.as_str()))
        };
        let sent = self.http.send(request, None).await;
        let (status, answer) = sent.map_err(CredentialsError::provider_error)?;
        if !(200..300).contains(&status) {
            return Err(self.refusal(&answer));
        }
        let newer = session.renewed(&answer, crate::control::now());
        newer.map_err(|why| CredentialsError::provider_error(self.http.without_keys(&why)))
    }

    /// The error of a refusal. Without a code another server has answered, which is asked by a
    /// setting.
    fn refusal(&self, answer: &[u8]) -> CredentialsError {
        let fields = Fields::parse(answer, "has");
        let code = fields.as_ref().and_then(|fields| fields.get(CODE)?.as_str());
        let said = fields.as_ref().map(|fields| fields.said([CODE, "message"]));
        let reason = reason_of(&said.unwrap_or_default());
        let failed = self.http.failed(&reason, None);
        let failed = failed.filter(|error| error.kind() == ErrorKind::Access);
        let Some((error, code)) = failed.zip(code) else {
            return CredentialsError::provider_error(reason);
        };
        let error = self.login.to_log_in(error);
        refused(match code {
            NOT_ALLOWED => error.advise(ALLOW),
            code if ENDED.contains(&code) => error,
            _ => error.advise("try again later, and check this machine's clock"),
        })
    }

    /// Writes the session into its file for other programs, unless the file has another one by now
    /// than the `older` that was renewed.
    async fn save(&self, older: Session, newer: Session) {
        let file = self.login.file.clone();
        let saved = spawn_blocking(move || {
            let there = read_bounded(&file).map(Zeroizing::new)?;
            let there = Session::parse(there.as_bytes());
            match there.is_some_and(|there| there.text(REFRESH_TOKEN) == older.text(REFRESH_TOKEN))
            {
                true => write(&file, &newer),
                false => Ok(()),
            }
        });
        if let Err(error) = saved.await.expect("writing does not panic") {
            let file = self.login.shown_file();
            warn!("the renewed session cannot be written into {file}: {error}");
        }
    }
}

fn refused(error: Error) -> CredentialsError {
    CredentialsError::provider_error(error)
}

/// True if these keys are valid for longer than this.
fn outlasts(keys: &Credentials, least: Duration) -> bool {
    keys.expiry().is_some_and(|ends| ends > crate::control::now() + least)
}

/// Replaces a session's file atomically; only its user may read it. The target of a link is
/// replaced.
fn write(file: &Path, session: &Session) -> io::Result<()> {
    write_private(&file.canonicalize()?, session.written().as_bytes(), TEMPORARY_PREFIX)
}

/// The proof that the sender of a POST to this URL has the private key: a JSON Web Token (RFC 9449
/// section 4.2) with the signature of RFC 7518 section 3.4. `None` for a time before 1970, and
/// without random numbers.
fn proof(key: &EcdsaKeyPair, url: &Uri, now: SystemTime) -> Option<HeaderValue> {
    // An uncompressed point: a byte 4, then both coordinates (SEC 1 section 2.3.3).
    let (x, y) = key.public_key().as_ref().get(1..)?.split_at_checked(COORDINATE_BYTES)?;
    let encoded = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
    let jwk = json!({"kty": "EC", "crv": "P-256", "x": encoded(x), "y": encoded(y)});
    let head = json!({"typ": "dpop+jwt", "alg": "ES256", "jwk": jwk});
    let mut id = [0; IDENTIFIER_BYTES];
    aws_lc_rs::rand::fill(&mut id).ok()?;
    let body = json!({
        "htm": "POST",
        "htu": url.to_string(),
        "iat": now.duration_since(UNIX_EPOCH).ok()?.as_secs(),
        "jti": encoded(&id),
    });
    let [head, body] = [head, body].map(|part| encoded(part.to_string().as_bytes()));
    let signed = format!("{head}.{body}");
    let signature = key.sign(&SystemRandom::new(), signed.as_bytes()).ok()?;
    let mut proof =
        HeaderValue::try_from(format!("{signed}.{}", encoded(signature.as_ref()))).ok()?;
    proof.set_sensitive(true);
    Some(proof)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use aws_lc_rs::encoding::{AsDer as _, EcPrivateKeyRfc5915Der};
    use tempfile::TempDir;

    use super::*;
    use crate::control::auth::reasons::reasons;
    use crate::control::loopback::{Reply, Server, run};
    use crate::control::settings::Found;
    use crate::control::tls::Trust;
    use crate::s3::proxy::Proxies;

    fn session_with(key: &EcdsaKeyPair, refresh_token: &str) -> Session {
        let der: EcPrivateKeyRfc5915Der<'_> = key.private_key().as_der().expect("a key");
        let text = base64::engine::general_purpose::STANDARD.encode(der.as_ref());
        let key = format!("-----BEGIN EC PRIVATE KEY-----\n{text}\n-----END EC PRIVATE KEY-----\n");
        let session = json!({
            "accessToken": {
                "accessKeyId": "A", "secretAccessKey": "S", "sessionToken": "T",
                "expiresAt": "2026-01-01T00:00:00Z",
            },
            "refreshToken": refresh_token, "clientId": "C", "dpopKey": key,
        });
        Session(session.as_object().expect("an object").clone())
    }

    fn answer(access_key: usize, seconds: u64) -> String {
        let keys = json!({
            "accessKeyId": access_key.to_string(), "secretAccessKey": "S", "sessionToken": "T",
        });
        let answer = json!({
            "accessToken": keys, "expiresIn": seconds, "refreshToken": format!("R{access_key}"),
        });
        answer.to_string()
    }

    /// A folder with a session in a file, until when its keys are valid if not until long ago, and
    /// the session's private key.
    fn file_with_session(until: Option<SystemTime>) -> (TempDir, PathBuf, EcdsaKeyPair) {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("session.json");
        let key = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).expect("a key");
        let mut session = session_with(&key, "R");
        if let Some(until) = until {
            session.0[ACCESS_TOKEN][EXPIRES_AT] = instant_text(until).expect("a time").into();
        }
        std::fs::write(&file, &*session.written()).expect("room");
        (folder, file, key)
    }

    /// Within the time in which keys are renewed.
    fn soon() -> Option<SystemTime> {
        Some(crate::control::now() + REFRESH_AHEAD / 2)
    }

    /// The keys of a session in `file`, at this server.
    fn keys_of(file: PathBuf, server: &Server) -> KeysOfSession {
        let value = format!("http://{}", server.address);
        let found = Found { value, from: "AWS_ENDPOINT_URL_SIGNIN".to_owned() };
        let urls = vec![(CredentialService::SignIn, found)];
        let http = ChainHttp::new(Trust::System, Proxies::default(), urls);
        let settings = Settings::of(&[], &[], None).expect("no settings");
        let services = Services::new(&settings, "us-east-1", http).expect("switches");
        KeysOfSession {
            login: Login { profile: "p".to_owned(), file },
            http: services.http.of(CredentialService::SignIn),
            services,
            renewed: Mutex::default(),
            renewal_timeout: RENEWAL_TIMEOUT,
        }
    }

    /// A run may be longer than its keys are valid, and the file that of another login by then, or
    /// on a file system that nobody may write.
    #[test]
    fn keys_are_renewed_again_and_again_without_the_file() {
        let (_folder, file, key) = file_with_session(None);
        let other = session_with(&key, "other").written();
        let (count, changed, others) = (AtomicUsize::new(0), file.clone(), other.clone());
        let server = Server::start(move |_| {
            std::fs::write(&changed, &*others).expect("room");
            let before = count.fetch_add(1, Ordering::SeqCst);
            Reply::new(200, answer(before, if before < 2 { 299 } else { 900 }))
        });
        let keys = keys_of(file.clone(), &server);
        let asked = || run(keys.provide_credentials()).map(|keys| keys.access_key_id().to_owned());
        // The first two sets are to be renewed at once, the third is kept.
        let expected = ["0", "1", "2", "2"].map(str::to_owned);
        assert_eq!([asked(), asked(), asked(), asked()].map(|keys| keys.expect("keys")), expected);
        assert_eq!(server.seen().len(), 3);
        let there = std::fs::read_to_string(&file).expect("a file");
        assert_eq!(there, *other, "another login is not replaced");
        let renewed = keys.renewed.try_lock().expect("nobody asks").clone().expect("a session");
        assert_eq!(renewed.text(REFRESH_TOKEN), Some("R2"), "each answer's own is used");
        // Logged out.
        std::fs::remove_file(&file).expect("it is there");
        let error = asked().expect_err("no session");
        assert!(reasons(&error).contains("No such file or directory"), "{error:?}");
    }

    #[test]
    fn an_answer_that_lacks_a_part_of_the_keys_is_none() {
        let key = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).expect("a key");
        let session = session_with(&key, "R");
        let now = crate::control::now();
        let without = |name: &str| {
            let mut answer: Value = serde_json::from_str(&answer(0, 900)).expect("JSON");
            let keys = answer[ACCESS_TOKEN].as_object_mut().expect("keys");
            // Another spelling is another field.
            let value = keys.remove(name).expect("a field");
            keys.insert(name.to_uppercase(), value);
            session.renewed(answer.to_string().as_bytes(), now).map(|_| ())
        };
        for name in KEYS {
            assert_eq!(without(name), Err(format!("has no {name}")));
        }
        let newer = session.renewed(answer(0, 900).as_bytes(), now).expect("a session");
        assert_eq!(newer.keys().expect("keys").access_key_id(), "0");
    }

    #[test]
    fn a_service_that_hangs_does_not_keep_valid_keys_back() {
        let (_folder, file, _) = file_with_session(soon());
        let (answers, waits) = std::sync::mpsc::channel::<()>();
        let waits = std::sync::Mutex::new(waits);
        let server = Server::start(move |_| {
            // Until the test is over.
            let _ = waits.lock().expect("no panic").recv();
            Reply::new(200, "")
        });
        let keys =
            KeysOfSession { renewal_timeout: Duration::from_millis(50), ..keys_of(file, &server) };
        let given = run(keys.provide_credentials()).expect("keys");
        assert_eq!(given.access_key_id(), "A");
        drop(answers);
    }

    #[test]
    fn valid_keys_are_used_while_the_service_fails() {
        let (_folder, file, _) = file_with_session(soon());
        let server = Server::start(|_| Reply::new(400, "{\"error\":\"TOKEN_EXPIRED\"}"));
        let keys = run(keys_of(file, &server).provide_credentials()).expect("keys");
        assert_eq!(keys.access_key_id(), "A");
        assert_eq!(server.seen().len(), 1);
    }

    #[test]
    fn a_session_is_below_the_home_folder_or_where_a_variable_says() {
        let place = |variables: &[(&str, &str)]| {
            let variables = [&[("AWS_CONFIG_FILE", "/config")], variables].concat();
            let config = [("/config", "[default]\nlogin_session = arn:me\n")];
            let settings = Settings::of(&variables, &config, None).expect("good words");
            Login::of_profile(&settings, "default").map(|login| login.file)
        };
        // `printf arn:me | sha256sum`
        let name = "545571cfa93b7f589504ef846805e040f577bbf468827bf924b3b42c243ad70d.json";
        let at = |folder: &str| Ok(Path::new(folder).join(name));
        assert_eq!(place(&[("HOME", "/me")]), at("/me/.aws/login/cache"));
        let cache = |path| [("HOME", "/me"), ("AWS_LOGIN_CACHE_DIRECTORY", path)];
        assert_eq!(place(&cache("/cache")), at("/cache"));
        assert_eq!(place(&cache("~/cache")), at("/me/cache"));
        let error = place(&[]).expect_err("no home").to_string();
        let expected = "has login_session, but HOME is not set: sessions are in ~/.aws/login/cache";
        assert!(error.contains(expected), "{error}");
    }

    #[test]
    fn no_proof_is_that_of_another_request() {
        let key = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).expect("a key");
        let url = Uri::from_static("https://host/v1/token");
        let made = || proof(&key, &url, crate::control::now()).expect("a proof");
        let [one, other] = [made(), made()];
        assert!(one.is_sensitive() && one != other);
        assert_eq!(proof(&key, &url, UNIX_EPOCH - Duration::from_secs(1)), None);
    }
}
