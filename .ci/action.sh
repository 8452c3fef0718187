#!/usr/bin/env bash
# What the GitHub Action runs: the patterns of PARLAY_FILES, checked for PARLAY_TARGETS.
set -euo pipefail
shopt -s globstar nullglob

read -r -a patterns <<< "${PARLAY_FILES:-}"
files=()
for pattern in ${patterns[@]+"${patterns[@]}"}; do
  while IFS= read -r file; do
    files+=("./$file")
  done < <(compgen -G "$pattern" || true)
done
if [ "${#files[@]}" -eq 0 ]; then
  echo "::warning::no file matches the patterns that parlay was given"
  exit 0
fi

read -r -a targets <<< "${PARLAY_TARGETS:-}"
options=()
for target in ${targets[@]+"${targets[@]}"}; do
  options+=("--target=$target")
done

status=0
parlay check --format github ${options[@]+"${options[@]}"} -- "${files[@]}" || status=$?
if [ "${PARLAY_FORMAT_CHECK:-false}" = true ]; then
  parlay fmt --check -- "${files[@]}" || status=$?
fi
exit "$status"
