//! No secret in anything that is printed, whatever the level of logs and whatever fails.

use base64::Engine;
use inrush_origin::TlsConfig;

use crate::{ACCESS, Objects, Stage};

const WRONG_SECRET: &str = "SECRETsecretSECRETsecret0123456789abcdef";
const TOKEN: &str = "TOKENtokenTOKENtokenTOKENtoken";
const CUSTOMER_KEY: [u8; 32] = *b"CUSTOMERkeyCUSTOMERkeyCUSTOMERke";

#[test]
fn nothing_printed_holds_a_secret() {
    let objects = Objects::from([("a".to_owned(), vec![1; 3])]);
    let stage = Stage::new(&objects, TlsConfig::default());
    let encoded = base64::engine::general_purpose::STANDARD.encode(CUSTOMER_KEY);
    let report = stage.folder.path().join("report");
    let (destination, channel) = (stage.destination(), stage.folder.path().join("train"));
    let [destination, channel, report] =
        [&destination, &channel, &report].map(|path| path.to_str().expect("UTF-8"));
    let commands: [&[&str]; 6] = [
        &["get", "s3://lab/", destination, "--report", report],
        &["get", "s3://lab/a", destination, "--json"],
        &["get", "s3://lab/", "--discard", "--dry-run"],
        &["ls", "--recursive", "s3://lab/", "--json"],
        &["cat", "s3://lab/a"],
        &["pipe", "s3://lab/a", channel, "--epochs", "1"],
    ];
    for words in commands {
        for secret in [WRONG_SECRET, crate::SECRET] {
            let run = stage
                .trusting(words)
                .with_keys(crate::ACCESS_KEY, secret)
                .set("AWS_SESSION_TOKEN", TOKEN)
                .set("INRUSH_SSE_C_KEY", &encoded)
                .set("RUST_LOG", "trace")
                .set("RUST_BACKTRACE", "1")
                .run();
            let mut printed = format!("{}{}", run.stdout, run.stderr);
            printed.push_str(&std::fs::read_to_string(report).unwrap_or_default());
            // The origin wants no token: whatever is asked for is refused.
            run.check(run.status.code() == Some(ACCESS), "it was refused");
            for hidden in [secret, TOKEN, &encoded, "Signature=", "Authorization"] {
                let shown = printed.to_lowercase().contains(&hidden.to_lowercase());
                run.check(!shown, &format!("{hidden} was printed"));
            }
        }
    }
}
