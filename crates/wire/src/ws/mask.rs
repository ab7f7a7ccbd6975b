//! The mask of a client's frames (RFC 6455 §5.3).

/// Applies the mask `key` to `bytes` in place. `phase` is the number of preceding payload bytes, modulo 4;
/// the phase after these bytes is returned. Applied twice, it restores the bytes.
#[inline]
pub fn apply_mask(bytes: &mut [u8], key: [u8; 4], phase: u8) -> u8 {
    let phase = phase & 3;
    let mut turned = key;
    turned.rotate_left(usize::from(phase));
    let word = u64::from(u32::from_ne_bytes(turned));
    let word = word | word << 32;
    // Eight bytes per step: the compiler makes vector instructions of this.
    let (words, rest) = bytes.as_chunks_mut::<8>();
    for chunk in words {
        *chunk = (u64::from_ne_bytes(*chunk) ^ word).to_ne_bytes();
    }
    for (byte, key) in rest.iter_mut().zip(turned.iter().cycle()) {
        *byte ^= key;
    }
    // The remainder of a length by 4 fits in a byte.
    (phase + (bytes.len() % 4) as u8) & 3
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_is_masked_by_its_place_wherever_the_payload_is_cut() {
        let key = [0x11, 0x80, 0xff, 0x07];
        let plain: Vec<u8> = (0..100_u8).collect();
        let expected: Vec<u8> = plain.iter().enumerate().map(|(at, byte)| byte ^ key[at % 4]).collect();
        for cut in 0..plain.len() {
            let mut bytes = plain.clone();
            let (left, right) = bytes.split_at_mut(cut);
            let phase = apply_mask(left, key, 0);
            let end = apply_mask(right, key, phase);
            assert_eq!(bytes, expected, "cut at {cut}");
            assert_eq!(usize::from(end), plain.len() % 4);
        }
    }
}
