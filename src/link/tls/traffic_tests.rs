//! Records after a handshake, from a peer with known keys: every length, every split, every flipped
//! bit, and every message that may come between data.

use super::*;
use crate::link::tls::record::RecordLayout;

const LAYOUTS: [RecordLayout; 3] =
    [RecordLayout::Tls13, RecordLayout::Tls12Explicit, RecordLayout::Tls12];
/// More than a test needs.
const MANY: u64 = 1 << 20;

/// Keys by number for a direction; suites of one layout need no other test here.
fn secrets(layout: RecordLayout, number: u8) -> (u64, ConnectionTrafficSecrets) {
    let (key, iv) = ([number; 32].into(), [number; 12].into());
    let secrets = match layout {
        RecordLayout::Tls12 => ConnectionTrafficSecrets::Chacha20Poly1305 { key, iv },
        RecordLayout::Tls13 | RecordLayout::Tls12Explicit => {
            ConnectionTrafficSecrets::Aes256Gcm { key, iv }
        }
    };
    (0, secrets)
}

/// Makes keys by counting; the peer's start at 101.
#[derive(Default)]
struct Counting {
    received: u8,
    sent: u8,
    tickets: Vec<Vec<u8>>,
}

impl Schedule for Counting {
    fn next_receive(&mut self) -> Result<(u64, ConnectionTrafficSecrets), Error> {
        self.received += 1;
        Ok(secrets(RecordLayout::Tls13, 101 + self.received))
    }

    fn next_send(&mut self) -> Result<(u64, ConnectionTrafficSecrets), Error> {
        self.sent += 1;
        Ok(secrets(RecordLayout::Tls13, 1 + self.sent))
    }

    fn ticket(&mut self, message: &[u8]) -> Result<(), Error> {
        self.tickets.push(message.to_vec());
        Ok(())
    }
}

/// The session, and its peer's two directions.
struct Pair {
    traffic: Traffic<Counting>,
    seals: Protection,
    opens: Protection,
}

impl Pair {
    fn new(layout: RecordLayout) -> Self {
        let is_tls13 = layout == RecordLayout::Tls13;
        let protection = |number| Protection::new(is_tls13, secrets(layout, number)).expect("keys");
        let both = ExtractedSecrets { tx: secrets(layout, 1), rx: secrets(layout, 101) };
        let traffic = Traffic::new(is_tls13, both, MANY, Counting::default()).expect("keys");
        Self { traffic, seals: protection(101), opens: protection(1) }
    }

    fn seal(&mut self, what: ContentType, plain: &[u8]) -> Vec<u8> {
        let mut record = vec![0; self.seals.sealed_length(plain.len())];
        let length = self.seals.seal(what, plain, &mut record).expect("keys");
        assert_eq!(length, record.len());
        record
    }

    /// Seals a record as the peer and opens it.
    fn bring(&mut self, what: ContentType, plain: &[u8]) -> Result<Opened, Error> {
        let mut record = self.seal(what, plain);
        self.traffic.open(&mut record, &mut [0; 256])
    }

    /// All records that the session has sealed.
    fn take(&mut self, mut out: &[u8]) -> Vec<(ContentType, Vec<u8>)> {
        let mut all = Vec::new();
        while let Some(header) = Header::read(out) {
            let (record, rest) = out.split_at(HEADER_BYTES + header.length);
            let mut fragment = record[HEADER_BYTES..].to_vec();
            let (what, plain) = self.opens.open_in_place(&header, &mut fragment).expect("good");
            all.push((what, fragment[plain].to_vec()));
            out = rest;
        }
        all
    }
}

fn content(length: usize) -> Vec<u8> {
    (0..length).map(|at| u8::try_from(1 + at % 255).expect("a byte")).collect()
}

fn message(what: u8, body: &[u8]) -> Vec<u8> {
    let length = u32::try_from(body.len()).expect("short").to_be_bytes();
    [&[what], &length[1..], body].concat()
}

/// Types of messages between data.
const TICKET: u8 = 4;
const UPDATE: u8 = 24;

#[test]
fn records_of_every_length_with_any_padding() {
    let all = content(PLAINTEXT_BYTES_MAX);
    for layout in LAYOUTS {
        let mut pair = Pair::new(layout);
        let mut into = vec![0; PLAINTEXT_BYTES_MAX + 64];
        for length in 1..=PLAINTEXT_BYTES_MAX {
            let padding = length * 7 % 300;
            let padded =
                layout == RecordLayout::Tls13 && length + padding + 2 <= PLAINTEXT_BYTES_MAX;
            let mut record = if padded && padding > 0 {
                // The type, then zeros: the last of them is where the type would be.
                let inner = [&all[..length], &[23], &vec![0; padding - 1]].concat();
                pair.seal(ContentType::Unknown(0), &inner)
            } else {
                pair.seal(ContentType::ApplicationData, &all[..length])
            };
            let room = [into.len(), length, length - 1, 0][length % 4];
            let used = record.len();
            match pair.traffic.open(&mut record, &mut into[..room]).expect("good") {
                Opened::Written { used: seen, length: seen_length } => {
                    assert_eq!((seen, seen_length), (used, length), "{layout:?}");
                    assert!(into[..length] == all[..length], "{layout:?} of {length}");
                }
                Opened::Held { used: seen, plain } => {
                    assert!(room <= length && seen == used, "{layout:?} of {length} in {room}");
                    assert!(record[plain] == all[..length], "{layout:?} of {length} in place");
                }
                other => panic!("{layout:?} of {length}: {other:?}"),
            }
        }
    }
}

#[test]
fn a_record_is_opened_when_it_is_whole() {
    for layout in LAYOUTS {
        let mut pair = Pair::new(layout);
        let record = pair.seal(ContentType::ApplicationData, b"some data");
        for end in 0..record.len() {
            let opened = pair.traffic.open(&mut record.clone()[..end], &mut [0; 64]);
            assert_eq!(opened, Ok(Opened::Partial), "{end} of {}", record.len());
        }
        let mut into = [0; 64];
        let opened = pair.traffic.open(&mut record.clone(), &mut into);
        assert_eq!(opened, Ok(Opened::Written { used: record.len(), length: 9 }));
        assert_eq!(&into[..9], b"some data");
    }
}

#[test]
fn a_wrong_bit_is_seen_and_nothing_is_given_out() {
    for layout in LAYOUTS {
        let length = Pair::new(layout).seal(ContentType::ApplicationData, b"data").len();
        for bit in 0..length * 8 {
            // RFC 8446 section 5.1: the version of a record is to be ignored.
            if layout == RecordLayout::Tls13 && (16..24).contains(&bit) {
                continue;
            }
            for room in [64, 0] {
                let mut pair = Pair::new(layout);
                let mut records = pair.seal(ContentType::ApplicationData, b"data");
                let next = pair.seal(ContentType::ApplicationData, b"next");
                records.extend_from_slice(&next);
                records[bit / 8] ^= 1 << (bit % 8);
                let mut into = vec![0; room];
                let opened = pair.traffic.open(&mut records, &mut into);
                // The rest of a longer record may still be on its way.
                if bit / 8 == 3 || bit / 8 == 4 {
                    assert!(!matches!(opened, Ok(Opened::Written { .. } | Opened::Held { .. })));
                    continue;
                }
                let error = opened.expect_err("it is wrong");
                assert!(into.iter().all(|&byte| byte == 0), "nothing is left of it");
                assert!(!records.windows(4).any(|window| window == b"data"));
                let again = pair.traffic.open(&mut next.clone(), &mut into);
                assert_eq!(again, Err(error), "nothing behind it is looked at");
                assert!(pair.traffic.seal(b"x", &mut [0; 256]).is_err());
            }
        }
    }
}

#[test]
fn records_in_another_order_are_wrong() {
    for layout in LAYOUTS {
        let mut pair = Pair::new(layout);
        let first = pair.seal(ContentType::ApplicationData, b"first");
        let mut second = pair.seal(ContentType::ApplicationData, b"second");
        let opened = pair.traffic.open(&mut second, &mut [0; 64]);
        assert_eq!(opened, Err(Error::DecryptError), "{layout:?}");
        let mut pair = Pair::new(layout);
        assert!(pair.traffic.open(&mut first.clone(), &mut [0; 64]).is_ok());
        let twice = pair.traffic.open(&mut first.clone(), &mut [0; 64]);
        assert_eq!(twice, Err(Error::DecryptError), "{layout:?}");
    }
}

#[test]
fn what_no_record_begins_with_is_refused_before_it_is_there() {
    for layout in LAYOUTS {
        let mut errors = Vec::new();
        let longest = PLAINTEXT_BYTES_MAX + 24 + usize::from(layout == RecordLayout::Tls13);
        for header in [*b"HTTP/", [23, 3, 3, 0x48, 0x19], [20, 3, 3, 0, 1], [23, 3, 3, 0, 15]] {
            let opened = Pair::new(layout).traffic.open(&mut header.clone(), &mut [0; 64]);
            errors.push(opened.expect_err("none"));
        }
        assert_eq!(errors[1], Error::PeerSentOversizedRecord);
        assert_eq!(errors[3], Error::DecryptError, "shorter than a tag");
        let [high, low] = u16::try_from(longest + 1).expect("short").to_be_bytes();
        let opened = Pair::new(layout).traffic.open(&mut [23, 3, 3, high, low], &mut [0; 64]);
        assert_eq!(opened, Err(Error::PeerSentOversizedRecord), "{layout:?}");
    }
    let bare =
        Pair::new(RecordLayout::Tls13).traffic.open(&mut [21, 3, 3, 0, 2, 1, 0], &mut [0; 64]);
    assert!(bare.is_err(), "an alert that anybody may have written");
    let nothing = Pair::new(RecordLayout::Tls13).bring(ContentType::Unknown(0), &[0; 40]);
    assert_eq!(nothing, Err(PeerMisbehaved::IllegalTlsInnerPlaintext.into()));
    let other = Pair::new(RecordLayout::Tls13).bring(ContentType::ChangeCipherSpec, &[1]);
    assert!(matches!(other, Err(Error::InappropriateMessage { .. })), "{other:?}");
}

#[test]
fn messages_may_be_split_anywhere() {
    let all = [message(TICKET, &content(90)), message(TICKET, b""), message(UPDATE, &[1])].concat();
    for first in 1..all.len() {
        for second in [first + 1, all.len() - 1, all.len()] {
            let mut pair = Pair::new(RecordLayout::Tls13);
            let second = second.clamp(first, all.len());
            for part in [&all[..first], &all[first..second], &all[second..]] {
                if !part.is_empty() {
                    let opened = pair.bring(ContentType::Handshake, part);
                    assert!(matches!(opened, Ok(Opened::Other { .. })), "{first}, {second}");
                }
            }
            assert_eq!(pair.traffic.schedule.tickets, [content(90), Vec::new()]);
            assert_eq!(pair.traffic.schedule.received, 1);
            pair.seals = Protection::new(true, secrets(RecordLayout::Tls13, 102)).expect("keys");
            let opened = pair.bring(ContentType::ApplicationData, b"data");
            assert!(matches!(opened, Ok(Opened::Written { length: 4, .. })), "{opened:?}");
        }
    }
}

#[test]
fn messages_leave_nothing_where_data_goes() {
    let mut pair = Pair::new(RecordLayout::Tls13);
    let mut record = pair.seal(ContentType::Handshake, &message(TICKET, &content(90)));
    let mut into = [0; 256];
    let opened = pair.traffic.open(&mut record, &mut into);
    assert_eq!(opened, Ok(Opened::Other { used: record.len() }));
    assert_eq!(into, [0; 256]);
}

#[test]
fn messages_that_may_not_come() {
    let misbehaved = |why: PeerMisbehaved| Err(Error::from(why));
    let mut pair = Pair::new(RecordLayout::Tls13);
    assert!(pair.bring(ContentType::Handshake, &[TICKET, 0, 0, 9, 1]).is_ok());
    let opened = pair.bring(ContentType::ApplicationData, b"data");
    assert_eq!(opened, misbehaved(PeerMisbehaved::MessageInterleavedWithHandshakeMessage));
    let mut pair = Pair::new(RecordLayout::Tls13);
    assert!(pair.bring(ContentType::Handshake, &[TICKET]).is_ok());
    let opened = pair.bring(ContentType::Alert, &[1, 0]);
    assert_eq!(opened, misbehaved(PeerMisbehaved::MessageInterleavedWithHandshakeMessage));
    let update = message(UPDATE, &[0]);
    for behind in [&[TICKET][..], &message(TICKET, b"x")] {
        let both = [&update, behind].concat();
        let opened = Pair::new(RecordLayout::Tls13).bring(ContentType::Handshake, &both);
        assert_eq!(opened, misbehaved(PeerMisbehaved::KeyEpochWithPendingFragment));
    }
    for wrong in [&message(UPDATE, &[2])[..], &message(UPDATE, b""), &[TICKET, 1, 0, 0], b""] {
        let opened = Pair::new(RecordLayout::Tls13).bring(ContentType::Handshake, wrong);
        assert!(matches!(opened, Err(Error::InvalidMessage(_))), "{wrong:?}: {opened:?}");
    }
    let not_tls12 = [message(TICKET, b"x"), update];
    let not_tls13 = [message(0, b""), message(1, b"x"), message(13, b"x")];
    for (layout, messages) in
        [(RecordLayout::Tls12, &not_tls12[..]), (RecordLayout::Tls13, &not_tls13)]
    {
        for wrong in messages {
            let opened = Pair::new(layout).bring(ContentType::Handshake, wrong);
            let is_refused = matches!(opened, Err(Error::InappropriateHandshakeMessage { .. }));
            assert!(is_refused, "{layout:?}: {wrong:?}: {opened:?}");
        }
    }
}

#[test]
fn a_peer_that_asks_for_new_keys_gets_them() {
    let mut pair = Pair::new(RecordLayout::Tls13);
    for number in 1..=3 {
        // Requested twice, answered once.
        assert!(pair.bring(ContentType::Handshake, &message(UPDATE, &[1])).is_ok());
        let next =
            |number| Protection::new(true, secrets(RecordLayout::Tls13, number)).expect("keys");
        pair.seals = next(100 + 2 * number);
        assert!(pair.bring(ContentType::Handshake, &message(UPDATE, &[1])).is_ok());
        pair.seals = next(101 + 2 * number);
        let mut out = [0; 256];
        let length = pair.traffic.seal(b"GET", &mut out).expect("room");
        let first = HEADER_BYTES + Header::read(&out).expect("a record").length;
        let sent = pair.take(&out[..first]);
        assert_eq!(sent, [(ContentType::Handshake, message(UPDATE, &[0]))]);
        pair.opens = next(1 + number);
        let sent = pair.take(&out[first..length]);
        assert_eq!(sent, [(ContentType::ApplicationData, b"GET".to_vec())]);
    }
    assert!(pair.bring(ContentType::Handshake, &message(UPDATE, &[0])).is_ok());
    let mut out = [0; 256];
    let length = pair.traffic.seal(b"GET", &mut out).expect("room");
    assert_eq!(pair.take(&out[..length]).len(), 1, "nothing was asked for");
}

#[test]
fn keys_protect_as_many_records_as_their_limit() {
    let mut pair = Pair::new(RecordLayout::Tls13);
    pair.traffic.send_limit = 3;
    for round in 0..5 {
        let mut out = [0; 256];
        for _ in 0..2 {
            let length = pair.traffic.seal(b"GET", &mut out).expect("room");
            let records: Vec<_> = out[..length].to_vec();
            let first = HEADER_BYTES + Header::read(&records).expect("a record").length;
            if first < length {
                assert_eq!(pair.opens.sequence(), 2, "the third says that there are new keys");
                pair.take(&records[..first]);
                let keys = secrets(RecordLayout::Tls13, 1 + round);
                pair.opens = Protection::new(true, keys).expect("keys");
            }
            assert_eq!(pair.take(&records[if first < length { first } else { 0 }..]).len(), 1);
        }
    }
    let mut pair = Pair::new(RecordLayout::Tls12Explicit);
    pair.traffic.send_limit = 3;
    let mut out = [0; 256];
    let sent = (0..9).take_while(|_| pair.traffic.seal(b"GET", &mut out).is_ok()).count();
    assert_eq!(sent, 2, "TLS 1.2 has no new keys");
}

#[test]
fn a_long_request_is_several_records() {
    for layout in LAYOUTS {
        let mut pair = Pair::new(layout);
        let request = content(PLAINTEXT_BYTES_MAX * 2 + 5);
        let mut out = vec![0; request.len() + 1024];
        let length = pair.traffic.seal(&request, &mut out).expect("room");
        let records = pair.take(&out[..length]);
        let lengths: Vec<_> = records.iter().map(|(_, plain)| plain.len()).collect();
        assert_eq!(lengths, [PLAINTEXT_BYTES_MAX, PLAINTEXT_BYTES_MAX, 5], "{layout:?}");
        assert!(records.into_iter().flat_map(|(_, plain)| plain).eq(request));
        let room = pair.traffic.send.sealed_length(3);
        assert_eq!(pair.traffic.seal(b"GET", &mut out[..room - 1]), Err(Unsealed::NoRoom));
        assert_eq!(pair.traffic.seal(b"GET", &mut out[..room]), Ok(room));
    }
}

#[test]
fn alerts() {
    for layout in LAYOUTS {
        let is_tls13 = layout == RecordLayout::Tls13;
        for level in [1, 2] {
            let mut pair = Pair::new(layout);
            assert_eq!(pair.bring(ContentType::Alert, &[level, 0]), Ok(Opened::Closed));
            let behind = pair.traffic.open(&mut [0; 64], &mut [0; 64]);
            assert_eq!(behind, Ok(Opened::Closed), "what follows is to be ignored");
        }
        let fatal = Pair::new(layout).bring(ContentType::Alert, &[2, 80]);
        assert_eq!(fatal, Err(Error::AlertReceived(AlertDescription::InternalError)));
        let warned = Pair::new(layout).bring(ContentType::Alert, &[1, 112]);
        assert_eq!(warned.is_err(), is_tls13, "TLS 1.3 has no warnings: {warned:?}");
        let cancelled = Pair::new(layout).bring(ContentType::Alert, &[1, 90]);
        assert!(matches!(cancelled, Ok(Opened::Other { .. })), "{cancelled:?}");
        for wrong in [&[][..], &[1], &[1, 0, 0], &[3, 0]] {
            assert!(Pair::new(layout).bring(ContentType::Alert, wrong).is_err(), "{wrong:?}");
        }
    }
}

#[test]
fn renegotiation_is_refused_once() {
    let mut pair = Pair::new(RecordLayout::Tls12);
    assert!(pair.bring(ContentType::Handshake, &message(0, b"")).is_ok());
    let mut out = [0; 256];
    let length = pair.traffic.seal(b"GET", &mut out).expect("room");
    let records = pair.take(&out[..length]);
    assert_eq!(records[0], (ContentType::Alert, vec![1, 100]), "no_renegotiation");
    assert_eq!(records[1].0, ContentType::ApplicationData);
    let again = pair.bring(ContentType::Handshake, &message(0, b""));
    assert_eq!(again, Err(PeerMisbehaved::TooManyRenegotiationRequests.into()));
}

#[test]
fn a_peer_may_not_go_on_without_data() {
    let ticket = message(TICKET, b"x");
    let cases = [
        (RecordLayout::Tls13, ContentType::ApplicationData, &[][..]),
        (RecordLayout::Tls12, ContentType::ApplicationData, &[]),
        (RecordLayout::Tls13, ContentType::Alert, &[1, 90]),
        (RecordLayout::Tls12, ContentType::Alert, &[1, 90]),
        (RecordLayout::Tls13, ContentType::Handshake, &ticket),
    ];
    for (layout, what, plain) in cases {
        let mut pair = Pair::new(layout);
        for _ in 0..3 {
            for _ in 0..TLS_RECORDS_WITHOUT_DATA_MAX {
                assert!(pair.bring(what, plain).is_ok(), "{layout:?}, {what:?}");
            }
            assert!(pair.bring(ContentType::ApplicationData, b"data").is_ok());
        }
        let more = (0..100).take_while(|_| pair.bring(what, plain).is_ok()).count();
        assert_eq!(more, TLS_RECORDS_WITHOUT_DATA_MAX as usize, "{layout:?}, {what:?}");
    }
    let mut pair = Pair::new(RecordLayout::Tls13);
    let updates = (1..100).take_while(|number| {
        let opened = pair.bring(ContentType::Handshake, &message(UPDATE, &[0]));
        let keys = secrets(RecordLayout::Tls13, 101 + number);
        pair.seals = Protection::new(true, keys).expect("keys");
        opened.is_ok()
    });
    assert_eq!(updates.count(), TLS_RECORDS_WITHOUT_DATA_MAX as usize);
}

#[test]
fn nothing_secret_is_shown() {
    let pair = Pair::new(RecordLayout::Tls13);
    let shown = format!("{:?} {:?}", pair.traffic, pair.seals);
    assert!(shown.contains("sequence: 0"), "{shown}");
    assert!(!shown.contains("101") && !shown.contains("0x65"), "{shown}");
}
