//! Tests of proxies: for which hosts they are, the requests to them, and secrets.

use super::super::answer::explain;
use super::*;

/// The environment with these variables.
fn proxies(variables: &[(&str, &str)]) -> Proxies {
    Proxies::from_variables(|name| {
        let found = variables.iter().find(|(known, _)| *known == name);
        found.map(|(_, value)| (*value).into())
    })
}

fn endpoint(tls: bool, host: &str) -> Endpoint {
    Endpoint::new("bucket", tls, host, "/", "r", vec![])
}

/// An endpoint behind the proxy of ALL_PROXY.
fn behind(proxy: &str, tls: bool, host: &str) -> Endpoint {
    let mut endpoint = endpoint(tls, host);
    endpoint.proxy = proxies(&[("ALL_PROXY", proxy)]).of(&endpoint).expect("a proxy");
    endpoint
}

#[test]
fn the_scheme_has_its_variable_and_lower_case_comes_first() {
    let check = |variables: &[(&str, &str)], tls: bool, expected: Option<&str>| {
        let found = proxies(variables).of(&endpoint(tls, "h")).expect("usable");
        let found = found.map(|proxy| format!("{} {proxy}", proxy.variable));
        assert_eq!(found.as_deref(), expected, "{variables:?} {tls}");
    };
    check(&[], true, None);
    check(&[("HTTPS_PROXY", "http://p:1")], true, Some("HTTPS_PROXY p:1"));
    check(&[("HTTPS_PROXY", "http://p:1")], false, None);
    check(&[("HTTP_PROXY", "p")], false, Some("HTTP_PROXY p:80"));
    check(&[("HTTP_PROXY", "p")], true, None);
    let both = [("HTTPS_PROXY", "p:1"), ("https_proxy", "p:2")];
    check(&both, true, Some("https_proxy p:2"));
    // An empty one says that there is none.
    for empty in ["", " "] {
        check(&[("https_proxy", empty), ("HTTPS_PROXY", "p:1"), ("ALL_PROXY", "p:2")], true, None);
        check(&[("HTTPS_PROXY", empty), ("ALL_PROXY", "p:2")], true, None);
        check(&[("all_proxy", empty), ("ALL_PROXY", "p:2")], true, None);
        check(&[("http_proxy", empty), ("ALL_PROXY", "p:2")], true, Some("ALL_PROXY p:2"));
    }
    let all = [("ALL_PROXY", "HTTP://p:3/"), ("http_proxy", "p:4")];
    check(&all, true, Some("ALL_PROXY p:3"));
    check(&all, false, Some("http_proxy p:4"));
    check(&[("all_proxy", "http://[::1]:9")], true, Some("all_proxy [::1]:9"));
    // Unused variables are not parsed.
    check(&[("ALL_PROXY", "socks5://p"), ("HTTPS_PROXY", "p")], true, Some("HTTPS_PROXY p:80"));
    check(&[("HTTPS_PROXY", "ftp://p"), ("NO_PROXY", "h")], true, None);
    // The variables of CGI scripts have no effect.
    check(&[("HTTPS_PROXY", "p"), ("REQUEST_METHOD", "GET")], true, Some("HTTPS_PROXY p:80"));
}

#[test]
fn what_cannot_be_used_is_refused_by_name_and_without_its_password() {
    for (value, why) in [
        ("socks5://me:hunter2@p:1080", "not socks5://"),
        ("https://me:hunter2@p", "not https://"),
        ("hunter2://p", "not another scheme"),
        ("http://", "empty host"),
        ("http://me:hunter2@p:99999", "invalid port"),
        ("http://me:hunter2#x@p", "invalid port"),
        ("http://me:22#hunter2@p", "%23"),
        ("http://p/?hunter2", "%3F"),
        ("me:22/hunter2@p", "%2F"),
        (&format!("http://me:{}@p", "hunter2".repeat(80)), "over 512 bytes"),
    ] {
        let error = proxies(&[("https_proxy", value)]).of(&endpoint(true, "h"));
        let error = error.expect_err(value);
        let text = error.to_string();
        assert_eq!(error.kind(), ErrorKind::Usage, "{text}");
        assert!(text.starts_with("https_proxy cannot be used: "), "{text}");
        assert!(text.contains(why) && text.contains("http://proxy.example.com"), "{text}");
        assert!(!text.contains("hunter2"), "{text}");
    }
    let long = endpoint(true, &"h".repeat(256));
    let error = proxies(&[("ALL_PROXY", "p")]).of(&long).expect_err("no name of DNS");
    assert!(error.to_string().contains("over 255 bytes"), "{error}");
}

#[test]
fn no_proxy_spares_hosts() {
    let check = |no: &str, host: &str, spared: bool| {
        let all = proxies(&[("ALL_PROXY", "p"), ("NO_PROXY", no)]);
        let found = all.of(&endpoint(true, host)).expect("usable");
        assert_eq!(found.is_none(), spared, "{no:?} {host}");
    };
    check("", "s3.example.com", false);
    check("s3.example.com", "s3.example.com", true);
    check("S3.Example.COM", "s3.example.com", true);
    check("example.com", "s3.example.com", true);
    check(".example.com", "s3.example.com", true);
    check(".example.com", "example.com", true);
    check("example.com.", "s3.example.com", true);
    check("example.com", "s3.example.com.", true);
    check("example.com", "notexample.com", false);
    check("s3.example.com", "example.com", false);
    check("*.example.com", "s3.example.com", true);
    check("*.example.com", "example.org", false);
    check("s3*.example.com", "s3.example.com", false);
    check("*", "s3.example.com", true);
    check("*", "10.1.2.3", true);
    check("*", "[fd00::1]:9000", true);
    check("a, example.com ,b", "example.com", true);
    check("a example.com", "example.com", true);
    check("10.1.2.3", "10.1.2.3:9000", true);
    check("10.1.2.3", "10.1.2.30", false);
    check("10.0.0.0/8", "10.1.2.3", true);
    check("10.0.0.0/8", "11.1.2.3", false);
    check("fd00::/8", "[fd00::1]:9000", true);
    check("::1", "[::1]:9000", true);
    check("[::1]", "[::1]", true);
    // With a port, only that port.
    check("example.com:443", "example.com", true);
    check("example.com:9000", "example.com", false);
    check("example.com:9000", "s3.example.com:9000", true);
    check("*:9000", "10.1.2.3:9000", true);
    check("*:9000", "10.1.2.3", false);
    check("[::1]:9000", "[::1]:9000", true);
    check("[::1]:9001", "[::1]:9000", false);
    check("example.com:99999", "example.com", false);
}

#[test]
fn a_tunnel_is_asked_for() {
    let check = |proxy: &str, host: &str, expected: &str| {
        let request = behind(proxy, true, host).tunnel_request().expect("over TLS");
        let agent = sign::USER_AGENT;
        let expected = expected.replace("AGENT", &format!("user-agent: {agent}\r\n"));
        assert_eq!(String::from_utf8(request).expect("text"), expected);
    };
    let plain = "CONNECT b.s3.x:443 HTTP/1.1\r\nhost: b.s3.x:443\r\nAGENT\r\n";
    check("http://p:3128", "b.s3.x", plain);
    let six = "CONNECT [::1]:9000 HTTP/1.1\r\nhost: [::1]:9000\r\nAGENT\r\n";
    check("http://p:3128", "[::1]:9000", six);
    // `printf 'Aladdin:open sesame@%%2' | base64`
    let named = "CONNECT [fd00::2]:443 HTTP/1.1\r\nhost: [fd00::2]:443\r\nAGENT\
        proxy-authorization: \
        Basic QWxhZGRpbjpvcGVuIHNlc2FtZUAlMg==\r\n\r\n";
    check("http://Aladdin:open%20sesame%40%2@p:3128", "[fd00::2]", named);
    // `printf 'me:' | base64`
    let alone = "CONNECT h:443 HTTP/1.1\r\nhost: h:443\r\nAGENTproxy-authorization: Basic \
        bWU6\r\n\r\n";
    check("me@p", "h", alone);
    assert_eq!(behind("p", false, "h").tunnel_request(), None);
    assert_eq!(endpoint(true, "h").tunnel_request(), None);
}

#[test]
fn the_next_hop_is_the_proxy() {
    assert_eq!(endpoint(true, "h").next_hop(), ("h", 443));
    assert_eq!(behind("http://p:3128", true, "h").next_hop(), ("p", 3128));
    assert_eq!(behind("http://[::1]:3128", true, "h").next_hop(), ("::1", 3128));
    assert_eq!(endpoint(true, "h").host_in_words(), "h");
    let words = behind("http://me:secret@p:3128", true, "h").host_in_words();
    assert_eq!(words, "h by the proxy p:3128");
    assert!(behind("p", false, "h").relay().is_some());
    assert!(behind("p", true, "h").relay().is_none() && endpoint(false, "h").relay().is_none());
}

#[test]
fn an_answer_of_the_proxy_is_not_the_servers() {
    let page = b"<html><head><title>Denied</title></head></html>";
    let of_s3 = b"<Error><Code>AccessDenied</Code></Error>";
    let relayed = behind("http://me:hunter2@p:3128", false, "h");
    let check = |endpoint: &Endpoint, status, body: &[u8], expected: bool| {
        let refusal = endpoint.relay_refusal(&explain(status, body, ""));
        assert_eq!(refusal.is_some(), expected, "{status}");
        if let Some(refusal) = refusal {
            let text = refusal.to_string();
            let start = format!("the proxy p:3128 answered {status} to the request for h");
            assert!(text.starts_with(&start), "{text}");
        }
    };
    for status in [403, 502, 503] {
        check(&relayed, status, page, true);
        check(&relayed, status, of_s3, false);
        check(&relayed, status, b"", false);
        check(&behind("p", true, "h"), status, page, false);
        check(&endpoint(false, "h"), status, page, false);
    }
    let head = ServerError { is_foreign: true, ..explain(502, b"", "") };
    assert!(relayed.relay_refusal(&head).is_some(), "an answer to HEAD");
    check(&relayed, 407, b"", true);
    check(&relayed, 404, page, false);
    check(&relayed, 200, page, false);
}

#[test]
fn advice_names_the_variable() {
    let advice = |proxy: &str, status| {
        let refusal = behind(proxy, true, "h:9").proxy_refusal(status).expect("a proxy");
        assert_eq!(refusal.kind(), ErrorKind::Endpoint);
        refusal.to_string()
    };
    let named = "http://me:hunter2@p:3128";
    assert!(advice(named, 407).contains("check the user and the password in ALL_PROXY"));
    let wanted = "ALL_PROXY=http://USER:PASSWORD@p:3128";
    assert!(advice("p:3128", 407).contains(wanted));
    assert!(advice(named, 403).contains("NO_PROXY") && advice(named, 403).contains("h:9"));
    assert!(advice(named, 502).contains("does not reach the server"));
    assert_eq!(endpoint(true, "h").proxy_refusal(407), None);
    let advice = behind(named, true, "h").advice("else");
    assert_eq!(advice, "check the network and the proxy p:3128 of ALL_PROXY");
    assert_eq!(endpoint(true, "h").advice("else"), "else");
}

#[test]
fn no_password_is_shown() {
    let all = proxies(&[("ALL_PROXY", "http://me:hunter2@p"), ("NO_PROXY", "x")]);
    let endpoint = behind("http://me:hunter2@p", true, "h");
    let secret = STANDARD.encode("me:hunter2");
    assert!(endpoint.proxy.as_ref().expect("one").authorization().expect("one").contains(&secret));
    let refusal = endpoint.proxy_refusal(407).expect("a proxy");
    for shown in [format!("{all:?}"), format!("{endpoint:?}"), refusal.to_string()] {
        assert!(!shown.contains("hunter2") && !shown.contains(&secret), "{shown}");
        assert!(shown.contains("p:80") || shown.contains("ALL_PROXY"), "{shown}");
    }
}
