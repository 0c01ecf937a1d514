//! Keys of a session of `aws login`: the session's file below HOME has them, and AWS's sign-in
//! service renews them for the holder of the session's private key.
//!
//! aws-config has this, too. But it takes the service's URL from the environment by itself, writes
//! the file in place and without the fields that it does not know, and needs a second library of
//! cryptography. File, request and endpoints are those of botocore 1.44 (2026-11); the proof of the
//! key is DPoP (RFC 9449).

use std::fmt::{self, Write as _};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_credential_types::Credentials;
use aws_credential_types::credential_feature::AwsCredentialFeature;
use aws_credential_types::provider::error::CredentialsError;
use aws_credential_types::provider::{self, ProvideCredentials, SharedCredentialsProvider, future};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_types::body::SdkBody;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use http::{HeaderValue, Request, Uri, header};
use rustls::pki_types::PrivateSec1KeyDer;
use rustls::pki_types::pem::PemObject as _;
use serde_json::{Map, Value, json};
use tempfile::NamedTempFile;
use tokio::sync::Mutex;
use tokio::task::spawn_blocking;
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
use crate::control::limits::REFRESH_AHEAD;
use crate::control::settings::{LOGIN_SESSIONS, Settings, read_bounded};
use crate::error::{Error, ErrorKind, Result};
use crate::s3::uri::shown;
use crate::text::instant::instant_text;

/// The setting that `aws login` writes into a profile: who has logged in.
pub(super) const LOGIN: &str = "login_session";
/// The command that begins a session.
const COMMAND: &str = "aws login";

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
        let seconds = answer.0.get(EXPIRES_IN).and_then(Value::as_u64);
        let ends = seconds.and_then(|seconds| now.checked_add(Duration::from_secs(seconds)));
        let ends = ends.and_then(instant_text).ok_or_else(|| format!("has no {EXPIRES_IN}"))?;
        let token = answer.0.remove(REFRESH_TOKEN).filter(Value::is_string);
        let token = token.ok_or_else(|| format!("has no {REFRESH_TOKEN}"))?;
        let Some(Value::Object(mut keys)) = answer.0.remove(ACCESS_TOKEN) else {
            return Err(format!("has no {ACCESS_TOKEN}"));
        };
        keys.insert(EXPIRES_AT.to_owned(), ends.into());
        let mut newer = self.clone();
        // The older keys have the user's account, which no answer has.
        match newer.0.get_mut(ACCESS_TOKEN).and_then(Value::as_object_mut) {
            Some(older) => {
                // What the answer lacks must not be that of the older keys.
                Fields::of(keys.clone(), "has").keys(SESSION_TOKEN, EXPIRES_AT, PROVIDER)?;
                older.extend(keys);
            }
            None => drop(newer.0.insert(ACCESS_TOKEN.to_owned(), keys.into())),
        }
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
        })
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
        let error = match self.renew(&session).await {
            Ok(newer) => {
                let keys = self.login.keys(&newer).map_err(refused)?;
                self.save(newer.clone()).await;
                *renewed = Some(newer);
                return Ok(keys);
            }
            Err(error) => error,
        };
        // Another program may have renewed the session: then its older refresh token is refused.
        match self.newest(renewed.as_ref()).await {
            Ok((keys, _)) if outlasts(&keys, Duration::ZERO) => Ok(keys),
            _ => Err(error),
        }
    }

    /// The session of the file or the one renewed here, whose keys last longer.
    async fn newest(&self, renewed: Option<&Session>) -> Result<(Credentials, Session)> {
        let with_keys = |session: Session| Ok((self.login.keys(&session)?, session));
        let of_file = self.login.read().await.and_then(with_keys);
        match renewed.map(|session| with_keys(session.clone())) {
            Some(Ok(renewed)) => Ok(match of_file {
                Ok(of_file) if of_file.0.expiry() > renewed.0.expiry() => of_file,
                _ => renewed,
            }),
            _ => of_file,
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
        let region = session.text(SIGN_IN_REGION);
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
        session.renewed(&answer, crate::control::now()).map_err(|why| {
            let host = url.authority().map_or("", |authority| authority.as_str());
            let error = Error::new(ErrorKind::Access, format!("the answer of {host} {why}"));
            CredentialsError::provider_error(ConnectorError::other(error.into(), None))
        })
    }

    /// The error of a refusal. Without a code another server has answered, which is asked by a
    /// setting.
    fn refusal(&self, answer: &[u8]) -> CredentialsError {
        let fields = Fields::parse(answer, "has");
        let text = |name| fields.as_ref()?.get(name)?.as_str().map(str::to_owned);
        let code = text("error");
        let said: Vec<String> = [code.clone(), text("message")].into_iter().flatten().collect();
        let reason = reason_of(&said.join(": "));
        let failed = self.http.failed(&reason, None);
        let failed = failed.filter(|error| error.kind() == ErrorKind::Access);
        match (failed, code.as_deref()) {
            (Some(error), Some(NOT_ALLOWED)) => refused(self.login.to_log_in(error).advise(ALLOW)),
            (Some(error), Some(_)) => refused(self.login.to_log_in(error)),
            _ => CredentialsError::provider_error(reason),
        }
    }

    /// Writes the session into its file for other programs, whose refresh token this one has used.
    async fn save(&self, session: Session) {
        let file = self.login.file.clone();
        let saved = spawn_blocking(move || save(&file, &session)).await;
        if let Err(error) = saved.expect("writing does not panic") {
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
fn save(file: &Path, session: &Session) -> io::Result<()> {
    let file = file.canonicalize()?;
    let folder = file.parent().unwrap_or(Path::new("/"));
    let mut temporary = NamedTempFile::new_in(folder)?;
    temporary.write_all(session.written().as_bytes())?;
    temporary.persist(file)?;
    Ok(())
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

    use super::*;
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
        }
    }

    /// A run may be longer than its keys are valid, on a file system that nobody may write.
    #[test]
    fn keys_are_renewed_again_and_again_without_the_file() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("session.json");
        let key = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).expect("a key");
        std::fs::write(&file, &*session_with(&key, "R").written()).expect("room");
        let count = AtomicUsize::new(0);
        let gone = file.clone();
        let server = Server::start(move |_| {
            // From now on it can be neither read nor written.
            let _ = std::fs::remove_file(&gone);
            let before = count.fetch_add(1, Ordering::SeqCst);
            Reply::new(200, answer(before, if before < 2 { 299 } else { 900 }))
        });
        let keys = keys_of(file.clone(), &server);
        let asked = || run(keys.provide_credentials()).expect("keys").access_key_id().to_owned();
        // The first two sets are to be renewed at once, the third is kept.
        assert_eq!([asked(), asked(), asked(), asked()], ["0", "1", "2", "2"]);
        assert_eq!(server.seen().len(), 3);
        assert!(!file.exists(), "it is not made anew");
        let renewed = keys.renewed.try_lock().expect("nobody asks").clone().expect("a session");
        assert_eq!(renewed.text(REFRESH_TOKEN), Some("R2"), "each answer's own is used");
    }

    #[test]
    fn valid_keys_are_used_while_the_service_fails() {
        let folder = tempfile::tempdir().expect("a folder");
        let file = folder.path().join("session.json");
        let key = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).expect("a key");
        let soon = crate::control::now() + REFRESH_AHEAD / 2;
        let mut session = session_with(&key, "R");
        session.0[ACCESS_TOKEN][EXPIRES_AT] = instant_text(soon).expect("a time").into();
        std::fs::write(&file, &*session.written()).expect("room");
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
