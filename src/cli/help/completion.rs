//! Completion scripts for shells. The table of options is in the script; profiles and keys are
//! requested during completion, with the hidden command `inrush complete WORDS...`.

use std::ffi::OsString;

use clap::{FromArgMatches, ValueHint};
use clap_complete::Shell;

use crate::cli::{ServiceArgs, command, help};

/// Commands with the options of [`ServiceArgs`].
const REMOTE: [&str; 8] = ["get", "sync", "load", "verify", "ls", "pipe", "cat", "train"];

/// First line of the generated function in bash and in zsh.
const FUNCTION: &str = "_inrush() {\n";

/// bash splits words at colons and equal signs, replaces only the part after the last one, and
/// passes words as they were typed: this script handles quotes and backslashes. A word in an open
/// quote is not split. Keys are untrusted, and bash inserts them into the line verbatim: characters
/// with a meaning there are escaped, and keys that cannot be escaped (`!` in `"`) are not offered.
/// Nothing is offered after a quote inside of the word either, because its state is unknown.
const BASH: &str = r#"_inrush() {
    local -a _words=()
    local _at _raw _found _next _quoted _stops="\"'" _typed="" _quote="" _cut=""
    for ((_at = 0; _at <= COMP_CWORD; _at++)); do
        _raw="${COMP_WORDS[_at]}"
        if ((_at > 1)) && [[ "$_raw" == [:=]* || "${COMP_WORDS[_at - 1]}" == *[:=] ]]; then
            _words[${#_words[@]} - 1]+="$_raw"
        else
            _words+=("$_raw")
        fi
    done
    _raw="${_words[${#_words[@]} - 1]}"
    [[ "$_raw" == [\'\"]* ]] && _quote="${_raw:0:1}" && _raw="${_raw:1}"
    if ((${#_words[@]} > 2)) && [[ "$_raw" == s3:* || "$_raw" == --profile=* ||
        "${_words[${#_words[@]} - 2]}" == --profile ]]; then
        if [[ -z "$_quote" ]]; then
            [[ "${COMP_WORDS[COMP_CWORD]}" == "$_raw" ]] || _cut="${_raw%"${_raw##*[:=]}"}"
        fi
        COMPREPLY=()
        [[ -z "$_quote" ]] || _stops="$_quote"
        for ((_at = 0; _at < ${#_raw}; _at++)); do
            _next="${_raw:_at + 1:1}"
            if [[ "${_raw:_at:1}" == "\\" && "$_quote" != "'" ]] &&
                [[ -z "$_quote" || "$_next" == [\"\\\$\`] ]]; then
                _at=$((_at + 1))
            elif [[ "${_raw:_at:1}" == ["$_stops"] ]]; then
                return 0
            fi
            _typed+="${_raw:_at:1}"
        done
        _words[${#_words[@]} - 1]="$_typed"
        while IFS= read -r _found; do
            [[ "$_quote" == '"' && "$_found" == *!* ]] && continue
            [[ "$_found" == */ ]] && compopt -o nospace 2>/dev/null
            printf -v _quoted '%q' "$_found"
            [[ -z "$_quote" ]] || _quoted=""
            for ((_at = 0; _at < ${#_found} && ${#_quote}; _at++)); do
                _next="${_found:_at:1}"
                case "$_quote$_next" in
                    \"[\"\\\$\`]) _quoted+="\\" ;;
                    "''") _quoted+="'\\'" ;;
                esac
                _quoted+="$_next"
            done
            COMPREPLY+=("${_quoted#"$_cut"}")
        done < <(inrush complete -- "${_words[@]:1}" 2>/dev/null)
        return 0
    fi
"#;

/// zsh passes words unsplit, quoted as typed. Candidates are inserted verbatim (`-U`): otherwise
/// zsh would match them against the typed word as a pattern. An open quote does not match.
const ZSH: &str = r#"_inrush() {
    local _typed="${(Q)words[CURRENT]}"
    [[ -z "$compstate[quote]" ]] || _typed="${words[CURRENT]#[\'\"]}"
    if (( CURRENT > 2 )) && [[ "$_typed" == (s3:|--profile=)* ||
        "$words[CURRENT-1]" == --profile ]]; then
        local -a before=("${(@Q)words[2,CURRENT-1]}")
        local -a found=("${(@f)$(inrush complete -- "${before[@]}" "$_typed" 2>/dev/null)}")
        found=(${found:#})
        compadd -U -S '' -- ${(M)found:#*/}
        compadd -U -- ${found:#*/}
        return $(( ${#found} == 0 ))
    fi
"#;

/// In fish, one function completes keys and profiles. The word is quoted as it was typed.
const FISH: &str = r#"
function __fish_inrush_found
    set -l words (commandline -opc)
    inrush complete -- $words[2..-1] (string unescape -- (commandline -ct)) 2>/dev/null
end
complete -c inrush -n 'string match -q "s3:*" -- (string unescape -- (commandline -ct))' -f \
    -a '(__fish_inrush_found)'
complete -c inrush -l profile -r -f -a '(__fish_inrush_found)'
"#;

/// The completion script of a shell.
#[must_use]
pub fn completions(shell: Shell) -> Vec<u8> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command(), help::NAME, &mut script);
    let script = String::from_utf8(script).expect("the table is UTF-8");
    let script = match shell {
        Shell::Bash => script.replacen(FUNCTION, BASH, 1),
        Shell::Zsh => script.replacen(FUNCTION, ZSH, 1),
        Shell::Fish => script + FISH,
        _ => script,
    };
    script.into_bytes()
}

/// Disables file completion for values that are not file names.
pub(in crate::cli) fn without_files(arg: clap::Arg) -> clap::Arg {
    match arg.get_value_hint() {
        ValueHint::Unknown if arg.get_action().takes_values() => arg.value_hint(ValueHint::Other),
        _ => arg,
    }
}

/// A word to complete.
#[derive(Debug, Clone, Default)]
pub struct CompleteArgs {
    /// The word as far as it was typed.
    pub word: String,
    /// The word before it.
    pub before: String,
    /// Server and credentials, as far as they were typed.
    pub service: ServiceArgs,
}

impl CompleteArgs {
    /// Parses the words after the program's name; the last one is incomplete.
    pub(in crate::cli) fn new(mut words: Vec<OsString>) -> Self {
        let word = words.pop().unwrap_or_default().to_string_lossy().into_owned();
        let before = words.last().map(|word| word.to_string_lossy().into_owned());
        words.insert(0, help::NAME.into());
        let matches = command().ignore_errors(true).try_get_matches_from(words).ok();
        let service = matches.as_ref().and_then(|matches| {
            let (_, typed) = matches.subcommand().filter(|(name, _)| REMOTE.contains(name))?;
            ServiceArgs::from_arg_matches(typed).ok()
        });
        Self { word, before: before.unwrap_or_default(), service: service.unwrap_or_default() }
    }
}
