use std::fs::{Permissions, set_permissions};
use std::os::unix::fs::PermissionsExt;

use super::*;

fn place() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(KEY_FILE);
    (dir, path)
}

#[test]
fn a_generated_key_is_private_complete_and_found_again() {
    let (dir, path) = place();
    let made = generate(&path, false).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
    assert_eq!(Identity::load(&path).unwrap().pin(), made.pin());
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "no temporary file is left");
}

#[test]
fn a_key_is_never_overwritten_without_being_told() {
    let (dir, path) = place();
    let first = generate(&path, false).unwrap();
    assert!(matches!(generate(&path, false), Err(IdentityError::Exists(_))));
    assert_eq!(Identity::load(&path).unwrap().pin(), first.pin());
    let second = generate(&path, true).unwrap();
    assert_ne!(first.pin(), second.pin());
    assert_eq!(Identity::load(&path).unwrap().pin(), second.pin());
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn a_key_that_others_may_read_is_refused_with_the_command_to_run() {
    let (_dir, path) = place();
    generate(&path, false).unwrap();
    for mode in [0o640, 0o604, 0o620, 0o666] {
        set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        let text = Identity::load(&path).unwrap_err().to_string();
        assert!(text.contains(&format!("chmod 0600 {}", path.display())), "{text}");
    }
    set_permissions(&path, Permissions::from_mode(0o400)).unwrap();
    assert!(Identity::load(&path).is_ok());
}

#[test]
fn a_key_of_somebody_else_is_refused() {
    if !Uid::effective().is_root() {
        return; // Giving a file away takes root; CI runs as root.
    }
    let (_dir, path) = place();
    generate(&path, false).unwrap();
    std::os::unix::fs::chown(&path, Some(65_534), None).unwrap();
    assert!(matches!(Identity::load(&path), Err(IdentityError::Owner { uid: 65_534, .. })));
}

#[test]
fn what_is_missing_or_no_key_is_said_so() {
    let (_dir, path) = place();
    assert!(matches!(Identity::load(&path), Err(IdentityError::Missing(_))));
    std::fs::write(&path, "nonsense").unwrap();
    set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    assert!(matches!(Identity::load(&path), Err(IdentityError::NotAKey { .. })));
    let p384 = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P384_SHA384).unwrap();
    std::fs::write(&path, p384.serialize_pem()).unwrap();
    assert!(Identity::load(&path).unwrap_err().to_string().contains("another algorithm"));
}

#[test]
fn a_p256_key_from_elsewhere_is_taken() {
    let (_dir, path) = place();
    let key = KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
    std::fs::write(&path, key.serialize_pem()).unwrap();
    set_permissions(&path, Permissions::from_mode(0o600)).unwrap();
    assert_eq!(Identity::load(&path).unwrap().algorithm(), P256);
}

#[test]
fn a_key_behind_a_symbolic_link_is_refused() {
    let (dir, path) = place();
    generate(&dir.path().join("other.pem"), false).unwrap();
    std::os::unix::fs::symlink(dir.path().join("other.pem"), &path).unwrap();
    assert!(matches!(Identity::load(&path), Err(IdentityError::Io { .. })));
}

#[test]
fn a_switch_keeps_the_old_key_and_a_missing_next_key_changes_nothing() {
    let (dir, path) = place();
    let old = generate(&path, false).unwrap();
    assert!(activate_next(dir.path()).is_err());
    assert_eq!(Identity::load(&path).unwrap().pin(), old.pin());
    let next = generate(&dir.path().join(NEXT_FILE), false).unwrap();
    activate_next(dir.path()).unwrap();
    assert_eq!(Identity::load(&path).unwrap().pin(), next.pin());
    assert_eq!(Identity::load(&dir.path().join(OLD_FILE)).unwrap().pin(), old.pin());
    assert!(!dir.path().join(NEXT_FILE).exists());
}
