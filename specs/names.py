"""Every string that two processes must agree on, once.

Sources: OpenSandbox protocol 1.1.1 (lifecycle and execution API). A string that
only one process knows stays in that process.
"""

# HTTP headers
HEADER_API_KEY = "OPEN-SANDBOX-API-KEY"
HEADER_ACCESS_TOKEN = "X-EXECD-ACCESS-TOKEN"  # noqa: S105 - the header's name, not a token
HEADER_EGRESS_AUTH = "OPENSANDBOX-EGRESS-AUTH"
HEADER_SECURE_ACCESS = "OpenSandbox-Secure-Access"
HEADER_INGRESS_TO = "OpenSandbox-Ingress-To"
HEADER_ACCESS_RENEW = "OpenSandbox-Access-Renew"
HEADER_ORIGIN = "OPEN-SANDBOX-ORIGIN"
HEADER_REQUEST_ID = "X-Request-ID"
HEADER_IDEMPOTENCY_KEY = "Idempotency-Key"
HEADER_TAIL_CURSOR = "EXECD-COMMANDS-TAIL-CURSOR"

# Ports inside a sandbox
PORT_EXECD = 44772
PORT_EGRESS = 18080

# Environment of execd, set by whoever starts the sandbox
ENV_SANDBOX_ID = "OPENSANDBOX_ID"
ENV_ACCESS_TOKEN = "EXECD_ACCESS_TOKEN"  # noqa: S105 - a variable's name
ENV_ACCESS_TOKEN_HASH = "BOXWRIGHT_ACCESS_TOKEN_HASH"  # noqa: S105 - "sha256:<64 hex>", never the token itself
ENV_ENVS_FILE = "EXECD_ENVS"
ENV_STATE_DIR = "BOXWRIGHT_STATE_DIR"
ENV_COMMAND_ID = "BOXWRIGHT_COMMAND_ID"  # marks every process of one command, so that all of them are found
ENV_JUPYTER_HOST = "JUPYTER_HOST"
ENV_JUPYTER_TOKEN = "JUPYTER_TOKEN"  # noqa: S105 - a variable's name
ENV_LD_PRELOAD = "BOXWRIGHT_LD_PRELOAD"  # the image's LD_PRELOAD, given back to user processes

# Names that belong to execd and are kept from user processes (EXECD_ENVS stays visible: clients need it)
ENV_PRIVATE = (
    ENV_ACCESS_TOKEN,
    ENV_ACCESS_TOKEN_HASH,
    ENV_STATE_DIR,
    ENV_LD_PRELOAD,
    ENV_JUPYTER_HOST,
    ENV_JUPYTER_TOKEN,
    "EXECD_ISOLATION_CONFIG",
    "EXECD_RUNTIME_INIT",
)

# Paths inside a sandbox
MOUNT_BUNDLE = "/opt/boxwright"  # read-only bind of the execd bundle
MOUNT_STATE = "/run/boxwright"  # small tmpfs, mode 1777: env file and output spools
ENVS_FILE = "/run/boxwright/env/vars"

# Labels on the workload: the record travels with the thing
LABEL_ID = "opensandbox.io/id"
LABEL_MANAGED_BY = "boxwright.io/managed-by"
LABEL_INSTANCE = "boxwright.io/instance"  # which installation (store) made it
LABEL_VOLUME_MANAGED_BY = "opensandbox.io/volume-managed-by"
LABEL_CREATED_AT = "boxwright.io/created-at"
RESERVED_METADATA_PREFIX = "opensandbox.io/"
EXTENSION_PREFIX = "opensandbox.extensions."
CONTAINER_PREFIX = "sandbox-"

# Keys and names that requests and gateway agree on (lifecycle §2.1, §2.4, §2.9)
ENV_LIFECYCLE = "OPENSANDBOX_LIFECYCLE"
ENV_EGRESS_PREFIX = "OPENSANDBOX_EGRESS_"
EXTENSION_POOL_REF = "poolRef"
EXTENSION_RENEW = "access.renew.extend.seconds"
EXTENSION_ISOLATION = "bootstrap.execd.isolation"
