#!/bin/sh
# Installs `tenon`: downloads the archive for this platform, verifies its checksum, and moves the
# program to a directory. A release fills in the next two lines.
#
#   TENON_INSTALL_DIR   where the program goes; default: ~/.local/bin
#   TENON_VERSION       another version than this script's
#   TENON_RELEASES      another place for releases: <TENON_RELEASES>/v<version>/<file>
set -eu
releases=""
version=""

fail() {
  echo "install.sh: $1" >&2
  exit 1
}

releases="${TENON_RELEASES:-$releases}"
version="${TENON_VERSION:-$version}"
dir="${TENON_INSTALL_DIR:-${HOME:?}/.local/bin}"
[ -n "$releases" ] && [ -n "$version" ] ||
  fail "this copy comes from a checkout and names no release: use the install.sh of a release, or set TENON_RELEASES and TENON_VERSION; to build from source: cargo install --locked --path installer"

case "$(uname -s)" in
Linux) system=unknown-linux-gnu ;;
Darwin) system=apple-darwin ;;
*) fail "there is no release for $(uname -s): build from source" ;;
esac
case "$(uname -m)" in
x86_64 | amd64) target="x86_64-$system" ;;
aarch64 | arm64) target="aarch64-$system" ;;
*) fail "there is no release for $(uname -m): build from source" ;;
esac

download() {
  if command -v curl >/dev/null; then
    curl --fail --silent --show-error --location --output "$2" "$1"
  elif command -v wget >/dev/null; then
    wget --quiet --output-document="$2" "$1"
  else
    fail "neither curl nor wget is installed"
  fi || fail "can't download $1"
}

checksum() {
  if command -v sha256sum >/dev/null; then
    sha256sum "$1"
  elif command -v shasum >/dev/null; then
    shasum -a 256 "$1"
  else
    fail "neither sha256sum nor shasum is installed"
  fi | cut -d ' ' -f 1
}

stem="tenon-$version-$target"
archive="$stem.tar.gz"
work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
download "$releases/v$version/SHA256SUMS" "$work/SHA256SUMS"
download "$releases/v$version/$archive" "$work/$archive"
expected="$(awk -v name="$archive" '$2 == name { print $1 }' "$work/SHA256SUMS")"
[ -n "$expected" ] || fail "SHA256SUMS of $version has no checksum for $archive: nothing was installed"
found="$(checksum "$work/$archive")"
[ "$found" = "$expected" ] ||
  fail "the checksum of $archive is $found, not $expected: nothing was installed"

tar -xzf "$work/$archive" -C "$work"
mkdir -p "$dir"
# Copied beside its place, then renamed: a running `tenon` is never half a file.
cp "$work/$stem/tenon" "$dir/.tenon.$$"
chmod 755 "$dir/.tenon.$$"
mv "$dir/.tenon.$$" "$dir/tenon"
echo "tenon $version is in $dir"
case ":${PATH:-}:" in
*":$dir:"*) ;;
*) echo "add $dir to PATH to run it by its name" ;;
esac
