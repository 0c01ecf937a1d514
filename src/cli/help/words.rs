//! Help texts that several commands share: variables, globs, filters, credentials.

/// Variables that are read if the option is not given.
pub(crate) const VARIABLES: [(&str, &str); 18] = [
    ("AWS_ENDPOINT_URL_S3", "see --endpoint-url; takes precedence over AWS_ENDPOINT_URL"),
    ("AWS_ENDPOINT_URL", "see --endpoint-url"),
    ("AWS_REGION", "see --region; takes precedence over AWS_DEFAULT_REGION"),
    ("AWS_DEFAULT_REGION", "see --region"),
    ("AWS_PROFILE", "see --profile"),
    ("AWS_USE_DUALSTACK_ENDPOINT", "true: see --use-dualstack-endpoint"),
    ("AWS_USE_FIPS_ENDPOINT", "true: see --use-fips-endpoint"),
    ("AWS_S3_DISABLE_EXPRESS_SESSION_AUTH", "true: use directory buckets without sessions"),
    ("INRUSH_RING", "see --ring"),
    ("INRUSH_FUSE", "see --fuse of mount"),
    ("INRUSH_SSE_C_KEY", "see --sse-c-key-file"),
    ("HTTPS_PROXY", "http:// proxy for https endpoints; HTTP_PROXY for http, ALL_PROXY for both"),
    ("NO_PROXY", "hosts to reach directly: a.example.com,10.0.0.0/8,host:9000,*"),
    ("AWS_ACCESS_KEY_ID", "access key, with AWS_SECRET_ACCESS_KEY and AWS_SESSION_TOKEN"),
    ("AWS_CREDENTIAL_EXPIRATION", "when these expire: refused from then on"),
    ("AWS_CONFIG_FILE", "configuration file, instead of ~/.aws/config"),
    ("AWS_SHARED_CREDENTIALS_FILE", "credentials file, instead of ~/.aws/credentials"),
    ("AWS_EC2_METADATA_DISABLED", "true: do not request credentials from the instance"),
];

/// The wildcards of sources and filters.
pub(crate) const GLOBS: [(&str, &str); 6] = [
    ("*", "any characters of one name: it stops at '/'"),
    ("**", "as a whole name: any folders, or none, as in 'train/**/*.tar'"),
    ("?", "one character, not '/'"),
    ("[a-z]", "one character of the set; [!a-z] is any character outside the set"),
    ("{a,b}", "either, in --include and --exclude; in a source braces mean themselves"),
    ("\\*", "the character '*'; --raw, and the exact key of an object, need no backslash"),
];

/// The order of filters.
pub(crate) const FILTERS: &str = "--include and --exclude are taken in the order typed, and the \
    last one that matches an object decides. Everything is taken at first; when the first of them \
    is an --include, nothing is. A pattern without '/' is compared with every name of the path \
    below the source, one with '/' against that path from its start; '/' at its end only says that \
    it is a folder. What matches a folder counts for all below it.";

/// Sources of credentials.
pub(crate) const CREDENTIALS: &str = "Credentials are searched for as in the AWS CLI: \
    environment, profile (keys, SSO, process, role), web identity, container, instance.";

/// Both usage lines of `get`.
pub(in crate::cli) const GET_USAGE: &str = "inrush get [OPTIONS] SOURCE... DEST\n       \
    inrush get [OPTIONS] SOURCE... --discard";

/// The usage line of `sync`.
pub(in crate::cli) const SYNC_USAGE: &str = "inrush sync [OPTIONS] SOURCE... DEST";

/// The usage lines of `load`.
pub(in crate::cli) const LOAD_USAGE: &str = "inrush load [OPTIONS] MODEL --to DIR\n       \
    inrush load [OPTIONS] MODEL --discard";
