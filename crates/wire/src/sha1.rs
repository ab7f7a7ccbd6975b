//! SHA-1 (FIPS 180-4), for the WebSocket handshake and the names of Redis scripts. Not for purposes that need
//! collision resistance.

/// Returns the SHA-1 digest of `bytes`, for protocols that use it as a name.
pub fn sha1(bytes: &[u8]) -> [u8; 20] {
    let mut state = [0x6745_2301_u32, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476, 0xc3d2_e1f0];
    let mut padded = bytes.to_vec();
    padded.push(0x80);
    padded.resize(padded.len().next_multiple_of(64), 0);
    if padded.len() - bytes.len() < 9 {
        padded.resize(padded.len() + 64, 0);
    }
    if let Some(length) = padded.last_chunk_mut::<8>() {
        *length = (bytes.len() as u64 * 8).to_be_bytes();
    }
    let (blocks, _) = padded.as_chunks::<64>();
    for block in blocks {
        mix(&mut state, block);
    }
    let mut digest = [0; 20];
    for (place, byte) in digest.iter_mut().zip(state.iter().flat_map(|word| word.to_be_bytes())) {
        *place = byte;
    }
    digest
}

#[allow(clippy::indexing_slicing, reason = "constant places below 80")]
fn mix(state: &mut [u32; 5], block: &[u8; 64]) {
    let mut words = [0_u32; 80];
    let (quads, _) = block.as_chunks::<4>();
    for (word, quad) in words.iter_mut().zip(quads) {
        *word = u32::from_be_bytes(*quad);
    }
    for at in 16..80 {
        words[at] = (words[at - 3] ^ words[at - 8] ^ words[at - 14] ^ words[at - 16]).rotate_left(1);
    }
    let [mut a, mut b, mut c, mut d, mut e] = *state;
    for (round, word) in words.iter().enumerate() {
        let (mixed, constant) = match round {
            0..20 => ((b & c) | (!b & d), 0x5a82_7999),
            20..40 => (b ^ c ^ d, 0x6ed9_eba1),
            40..60 => ((b & c) | (b & d) | (c & d), 0x8f1b_bcdc),
            _ => (b ^ c ^ d, 0xca62_c1d6_u32),
        };
        let next =
            a.rotate_left(5).wrapping_add(mixed).wrapping_add(e).wrapping_add(constant).wrapping_add(*word);
        (e, d, c, b, a) = (d, c, b.rotate_left(30), a, next);
    }
    for (place, value) in state.iter_mut().zip([a, b, c, d, e]) {
        *place = place.wrapping_add(value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(digest: [u8; 20]) -> String {
        digest.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The examples of FIPS 180-4 and of RFC 3174, and lengths around a block's end.
    #[test]
    fn digests_are_those_of_the_standard() {
        assert_eq!(hex(sha1(b"abc")), "a9993e364706816aba3e25717850c26c9cd0d89d");
        assert_eq!(hex(sha1(b"")), "da39a3ee5e6b4b0d3255bfef95601890afd80709");
        let two = b"abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq";
        assert_eq!(hex(sha1(two)), "84983e441c3bd26ebaae4aa1f95129e5e54670f1");
        assert_eq!(hex(sha1(&[b'a'; 1_000_000])), "34aa973cd4c4daa4f61eeb2bdbad27316534016f");
        let sixty_four: Vec<u8> = b"01234567".repeat(80);
        assert_eq!(hex(sha1(&sixty_four)), "dea356a2cddd90c7a7ecedc5ebb563934f460452");
    }
}
