//! Any bytes as the body of a frame, on both sides of the door. What one side accepts it must be able to say again, in
//! the same words.
#![no_main]

use keyholder::peer::wire::{decode_client, decode_server};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|body: &[u8]| {
    if let Ok(frame) = decode_client(body) {
        let again = serde_json::to_vec(&frame).expect("what was read can be written");
        assert_eq!(decode_client(&again).expect("what was written can be read"), frame);
    }
    if let Ok(frame) = decode_server(body) {
        let again = serde_json::to_vec(&frame).expect("what was read can be written");
        assert_eq!(decode_server(&again).expect("what was written can be read"), frame);
    }
});
