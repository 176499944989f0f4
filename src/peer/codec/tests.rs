use proptest::prelude::*;
use tokio::io::AsyncWriteExt;

use super::*;
use crate::peer::wire::{MAX_REQUEST, RelaunchOrder, Request, Verb};
use crate::vocabulary::{BootNonce, FleetHash};

fn request(because: &str) -> ClientFrame {
    ClientFrame::Request(Request {
        boot_nonce: BootNonce::from_bytes([1; 16]),
        req_id: ReqId::from_bytes([2; 16]),
        target_node: "mars".parse().unwrap(),
        worker: Some("write".parse().unwrap()),
        verb: Verb::Relaunch(RelaunchOrder::default()),
        because: because.to_owned(),
    })
}

fn json(frame: &ClientFrame) -> String {
    String::from_utf8(encode(frame, MAX_REQUEST).unwrap().split_off(HEADER)).unwrap()
}

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .unwrap()
        .block_on(future)
}

#[test]
fn a_frame_survives_the_wire() {
    let frame = request("deploy [7] \\ went \"wrong\" [, 配達 gap");
    assert_eq!(decode_client(json(&frame).as_bytes()).unwrap(), frame);
}

#[test]
fn whatever_is_not_exactly_one_known_frame_is_malformed() {
    let good = json(&request("x"));
    let nonce = "01010101010101010101010101010101";
    for bad in [
        good.replace("\"because\"", "\"because_\""),
        good.replace("{\"request\":{", "{\"request\":{\"extra\":1,"),
        good.replace("\"relaunch\":{", "\"reboot\":{"),
        good.replace("\"relaunch\":{", "\"relaunch\":{\"unit\":\"ssh.service\","),
        good.replace("{\"request\":{", &format!("{{\"request\":{{\"boot_nonce\":\"{nonce}\",")),
        good.replace("\"write\"", "\"ssh.service\""),
        good.replace("\"write\"", "\"../write\""),
        good.replace("\"mars\"", "\"mars:read\""),
        good.replace(nonce, &nonce.to_uppercase().replace('1', "A")),
        format!("{good} x"),
        format!("{good}{good}"),
        format!("[{good}]"),
        good.replace("{\"request\":{", "{\"request\":[").replace("}}", "]}"),
        format!("{{\"hello\":[\"mars\",\"0\",\"{nonce}\",\"{}\"]}}", FleetHash::of(b"")),
        "[".repeat(4000),
        "{\"hello\":null}".to_owned(),
        "\"keepalive\"".to_owned(),
        String::new(),
    ] {
        let error = decode_client(bad.as_bytes()).unwrap_err();
        assert_eq!(error.code(), Some(RefusalCode::Malformed), "{bad}");
        assert!(error.to_string().len() < 1000);
    }
}

#[test]
fn a_reason_is_short_and_printable() {
    assert!(decode_client(json(&request(&"ä".repeat(MAX_BECAUSE))).as_bytes()).is_ok());
    for bad in [&"ä".repeat(MAX_BECAUSE + 1), "\u{1b}[2J", "a\nb", "a\u{202e}b", "\0", "\u{85}"] {
        assert!(decode_client(json(&request(bad)).as_bytes()).is_err(), "{bad:?}");
    }
}

#[test]
fn a_version_cannot_carry_escapes_from_either_side() {
    let hello = Hello {
        node: "mars".parse().unwrap(),
        version: "0.1.0\u{1b}[2J".to_owned(),
        boot_nonce: BootNonce::from_bytes([1; 16]),
        fleet_hash: FleetHash::of(b""),
    };
    let bytes = encode(&ServerFrame::Hello(hello.clone()), MAX_REQUEST).unwrap().split_off(HEADER);
    assert!(decode_server(&bytes).is_err());
    assert!(decode_client(json(&ClientFrame::Hello(hello)).as_bytes()).is_err());
}

#[test]
fn a_complaint_never_carries_what_a_terminal_would_obey() {
    let frame = json(&request("x")).replace("\"relaunch\":{", "\"\\u001b[2J\\u202e\":{");
    let text = decode_client(frame.as_bytes()).unwrap_err().to_string();
    assert!(!text.chars().any(is_unsafe), "{text:?}");
}

#[test]
fn the_id_of_a_refused_request_is_found_again() {
    let frame = json(&request("x")).replace("\"relaunch\":{", "\"reboot\":{");
    assert_eq!(req_id_in(frame.as_bytes()), ReqId::from_bytes([2; 16]));
    assert_eq!(req_id_in(b"{}"), no_request());
}

#[test]
fn too_large_is_known_from_the_length_alone() {
    block_on(async {
        let (mut far, mut near) = tokio::io::duplex(64);
        far.write_all(&4097_u32.to_be_bytes()).await.unwrap();
        let mut reader = FrameReader::default();
        let error = reader.next(&mut near, MAX_REQUEST).await.unwrap_err();
        assert!(matches!(error, WireError::TooLarge { size: 4097, max: 4096 }));
        assert!(reader.buffer.capacity() <= 2 * READ_STEP);
    });
    assert!(matches!(encode(&"x".repeat(4095), 4096), Err(WireError::TooLarge { .. })));
}

#[test]
fn an_empty_frame_is_malformed() {
    block_on(async {
        let (mut far, mut near) = tokio::io::duplex(64);
        far.write_all(&0_u32.to_be_bytes()).await.unwrap();
        let error = FrameReader::default().next(&mut near, 10).await.unwrap_err();
        assert_eq!(error.code(), Some(RefusalCode::Malformed));
    });
}

#[test]
fn a_frame_that_was_begun_ends_within_its_deadline_also_across_cancellation() {
    block_on(async {
        let (mut far, mut near) = tokio::io::duplex(64);
        let mut reader = FrameReader::default();
        // Idle for long before the first byte is fine.
        assert!(tokio::time::timeout(Duration::from_secs(3600), reader.next(&mut near, 100)).await.is_err());
        far.write_all(&100_u32.to_be_bytes()).await.unwrap();
        let begun = Instant::now();
        let error = loop {
            match tokio::time::timeout(Duration::from_secs(1), reader.next(&mut near, 100)).await {
                Ok(result) => break result.unwrap_err(),
                Err(_) => far.write_all(b"x").await.unwrap(),
            }
        };
        assert!(matches!(error, WireError::TooSlow), "{error}");
        assert!(begun.elapsed() <= FRAME_DEADLINE + Duration::from_secs(1));
    });
}

#[test]
fn an_end_between_frames_is_an_end_and_inside_one_an_error() {
    block_on(async {
        let (far, mut near) = tokio::io::duplex(64);
        drop(far);
        assert!(FrameReader::default().next(&mut near, 10).await.unwrap().is_none());
        let (mut far, mut near) = tokio::io::duplex(64);
        far.write_all(&[0, 0]).await.unwrap();
        drop(far);
        assert!(matches!(FrameReader::default().next(&mut near, 10).await, Err(WireError::Truncated)));
    });
}

proptest! {
    #[test]
    fn frames_come_out_as_they_went_in_however_they_are_cut(
        frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..300), 1..6),
        room in 1_usize..40,
    ) {
        let stream: Vec<u8> = frames
            .iter()
            .flat_map(|f| u32::try_from(f.len()).unwrap().to_be_bytes().into_iter().chain(f.iter().copied()))
            .collect();
        let got = block_on(async {
            let (mut far, mut near) = tokio::io::duplex(room);
            let (sent, got) = tokio::join!(
                async move { far.write_all(&stream).await },
                async {
                    let (mut reader, mut got) = (FrameReader::default(), Vec::new());
                    while let Some(frame) = reader.next(&mut near, 300).await.unwrap() {
                        got.push(frame);
                    }
                    got
                }
            );
            sent.unwrap();
            got
        });
        prop_assert_eq!(got, frames);
    }

    #[test]
    fn no_bytes_make_a_decoder_panic(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        let _ = decode_client(&bytes);
        let _ = decode_server(&bytes);
        let _ = req_id_in(&bytes);
    }

    #[test]
    fn no_text_makes_a_decoder_panic(text in "(\\{|\\}|\\[|\"|:|,|request|hello|verb|status|\\\\u00|[0-9a-f]){0,60}") {
        let _ = decode_client(text.as_bytes());
        let _ = decode_server(text.as_bytes());
    }
}
