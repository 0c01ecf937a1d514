//! Reads the driver counters of a network device, by the ioctl of ethtool(8).

use std::os::fd::AsRawFd as _;

use rustix::net::{AddressFamily, SocketType, socket};

use super::Errno;

/// Commands of linux/ethtool.h: number of strings, strings, values.
const GET_STRINGS_INFO: u32 = 0x37;
const GET_STRINGS: u32 = 0x1b;
const GET_NUMBERS: u32 = 0x1d;
/// The string set with the names of the values (ETH_SS_STATS).
const NAMES: u32 = 1;
/// Bytes of a name.
const NAME_BYTES: usize = 32;
/// Buffer size in counters: far more than any device has, because the kernel writes all counters
/// that exist at the time of the call.
const ROOM: usize = 1 << 16;
/// Most counters that are requested.
const COUNTERS_MAX: usize = ROOM / 4;
/// Length of a command's header in 8-byte words.
const HEAD_WORDS: usize = 2;

/// The counters of a device, with their names.
///
/// # Errors
/// EOPNOTSUPP if the driver has none, ENODEV if there is no such device.
pub fn counters(device: &str) -> Result<Vec<(String, u64)>, Errno> {
    let info = ask(device, [word(GET_STRINGS_INFO, 0), 1 << NAMES], 1)?;
    // A mask of the existing sets, and the number of strings of the first one.
    let has_names = info[1] & (1 << NAMES) != 0;
    let [first, _] = halves(info[HEAD_WORDS]);
    let counted = if has_names { first } else { 0 };
    let count = usize::try_from(counted).unwrap_or(usize::MAX);
    if count > COUNTERS_MAX {
        return Err(Errno::INVALID);
    }
    let head = [word(GET_STRINGS, NAMES), word(counted, 0)];
    let names = ask(device, head, ROOM * NAME_BYTES / 8)?;
    let numbers = ask(device, [word(GET_NUMBERS, counted), 0], ROOM)?;
    Ok(named(&names, &numbers, count))
}

/// Pairs the names and values that the kernel wrote.
fn named(names: &[u64], numbers: &[u64], count: usize) -> Vec<(String, u64)> {
    let bytes: Vec<u8> = names.iter().flat_map(|word| word.to_ne_bytes()).collect();
    // The names follow command, set and length; the values follow command and length.
    let names = bytes.get(12..).unwrap_or_default().chunks_exact(NAME_BYTES);
    let numbers = numbers.get(1..).unwrap_or_default();
    let pairs = names.zip(numbers).take(count).map(|(name, number)| {
        let end = name.iter().position(|byte| *byte == 0).unwrap_or(NAME_BYTES);
        (String::from_utf8_lossy(&name[..end]).into_owned(), *number)
    });
    pairs.collect()
}

/// Packs two 4-byte numbers in memory order.
fn word(first: u32, second: u32) -> u64 {
    let mut bytes = [0; 8];
    bytes[..4].copy_from_slice(&first.to_ne_bytes());
    bytes[4..].copy_from_slice(&second.to_ne_bytes());
    u64::from_ne_bytes(bytes)
}

/// Unpacks two 4-byte numbers.
fn halves(word: u64) -> [u32; 2] {
    let bytes = word.to_ne_bytes();
    let at = |from: usize| {
        let mut half = [0; 4];
        half.copy_from_slice(&bytes[from..from + 4]);
        u32::from_ne_bytes(half)
    };
    [at(0), at(4)]
}

/// Issues a command with this header and `room` words of space after it.
fn ask(device: &str, head: [u64; HEAD_WORDS], room: usize) -> Result<Vec<u64>, Errno> {
    if device.len() >= libc::IFNAMSIZ || device.contains('\0') {
        return Err(Errno::INVALID);
    }
    let mut name = [0; libc::IFNAMSIZ];
    for (into, byte) in name.iter_mut().zip(device.bytes()) {
        *into = libc::c_char::from_ne_bytes([byte]);
    }
    let mut buffer = head.to_vec();
    buffer.resize(HEAD_WORDS + room, 0);
    let data = libc::__c_anonymous_ifr_ifru { ifru_data: buffer.as_mut_ptr().cast() };
    let mut request = libc::ifreq { ifr_name: name, ifr_ifru: data };
    let socket = socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    // SAFETY: the socket is open, `request` and the buffer that it points to live beyond the call
    // and nobody else uses them. The kernel reads the head, and writes at most what the command
    // says: a word and 4 bytes for each set that was asked for, which is one; 32 bytes, or 8, for
    // each counter of the device, for `ROOM` of which there is room. A device has a few thousand,
    // and `counters` asks for no more than `COUNTERS_MAX` of them.
    let result = unsafe {
        libc::ioctl(socket.as_raw_fd(), libc::SIOCETHTOOL as libc::Ioctl, &raw mut request)
    };
    match result {
        0.. => Ok(buffer),
        _ => Err(std::io::Error::last_os_error().into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_wrote_is_read() {
        let mut bytes = Vec::new();
        for number in [GET_STRINGS, NAMES, 2] {
            bytes.extend(number.to_ne_bytes());
        }
        for name in ["bw_in_allowance_exceeded", "a name that has all of 32 bytes."] {
            let mut field = name.as_bytes().to_vec();
            field.resize(NAME_BYTES, 0);
            bytes.extend(field);
        }
        bytes.resize(bytes.len().next_multiple_of(8) + 64, 0);
        let words: Vec<u64> = bytes
            .chunks_exact(8)
            .map(|word| u64::from_ne_bytes(word.try_into().expect("8 bytes")))
            .collect();
        let counters = named(&words, &[0, 7, 9, 11], 2);
        assert_eq!(counters[0], ("bw_in_allowance_exceeded".to_owned(), 7));
        assert_eq!(counters[1], ("a name that has all of 32 bytes.".to_owned(), 9));
        assert_eq!(counters.len(), 2);
        assert!(named(&[], &[], 2).is_empty());
        assert_eq!(halves(word(3, 4)), [3, 4]);
    }

    #[test]
    fn what_has_no_counters_says_so() {
        // The driver of the loopback interface has no counters.
        assert_eq!(counters("lo").map(|all| all.len()).unwrap_or(0), 0);
        assert!(counters("no-such-device").is_err());
        assert_eq!(counters("much-too-long-for-a-name"), Err(Errno::INVALID));
    }

    /// Any device of this machine that has counters.
    #[test]
    fn counters_have_names() {
        let devices = std::fs::read_dir("/sys/class/net").into_iter().flatten().flatten();
        for device in devices {
            let name = device.file_name().to_string_lossy().into_owned();
            let Ok(all) = counters(&name) else { continue };
            assert!(all.iter().all(|(name, _)| !name.is_empty() && name.is_ascii()), "{all:?}");
        }
    }
}
