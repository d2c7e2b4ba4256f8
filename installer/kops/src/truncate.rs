//! Names that are too long, shortened as kOps shortens them.

/// kOps' alphabet of hashes.
const DIGITS: &[u8; 32] = b"0123456789abcdefghijklmnopqrstuv";

/// Digits of the hash at the end.
const HASH: usize = 6;

/// The name itself if it is short enough, else its beginning and a hash of the whole.
pub(crate) fn name(name: &str, longest: usize) -> String {
    if name.len() <= longest {
        return name.to_owned();
    }
    let mut begin = longest - HASH - 1;
    while !name.is_char_boundary(begin) {
        begin -= 1;
    }
    format!("{}-{}", &name[..begin], hash(name))
}

/// 32 bits of FNV-1a, five at a time.
fn hash(text: &str) -> String {
    let bits = text
        .bytes()
        .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    let digit = |at: usize| char::from(DIGITS[(bits >> (27 - 5 * at)) as usize & 31]);
    (0..HASH).map(digit).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_long_name_ends_with_a_hash_of_the_whole() {
        assert_eq!(super::name("nodes.example.com", 64), "nodes.example.com");
        let long = format!("nodes.{}", "a".repeat(70));
        let short = super::name(&long, 64);
        assert_eq!(short.len(), 64);
        assert_ne!(short, super::name(&format!("{long}a"), 64));
    }
}
