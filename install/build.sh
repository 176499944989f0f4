# shellcheck shell=bash
# Building, as the person who called sudo: theirs are the toolchain and the target directory.

# sudo has another PATH and HOME than the person who has cargo, and root should own nothing in their target/.
build() {
    local who=${SUDO_USER:-root} home target
    home=$(getent passwd "$who" | cut -d: -f6)
    as_builder() { runuser -u "$who" -- env HOME="$home" PATH="$home/.cargo/bin:$PATH" "$@"; }
    as_builder sh -c 'command -v cargo' >/dev/null ||
        die "cargo was not found for $who: install Rust 1.89 or newer (https://rustup.rs; a distribution's own is often older), or build elsewhere and give --binary FILE"
    say "building (a few minutes the first time)"
    (cd "$HERE" && as_builder cargo build --release --locked --bins) || die "the build failed; nothing was changed"
    target=$(cd "$HERE" && as_builder cargo metadata --locked --no-deps --format-version 1 |
        sed -n 's/.*"target_directory":"\([^"]*\)".*/\1/p')
    binary=$target/release/keyholder
}

