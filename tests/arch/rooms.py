"""The table of rooms: who may include whom (STYLE.md section 1), and which libraries belong to whom.

A new edge is added here, with a comment that says why, or not at all.
"""

# Room -> rooms it may include, beside itself.
ROOMS = {
    'bpf/wire': set(),
    'bpf/lib': {'bpf/wire'},
    'bpf/hooks': {'bpf/wire', 'bpf/lib'},
    'bpf/selftest': {'bpf/wire', 'bpf/lib'},
    # The probe's canary programs: an object of their own, since the main one must not be loaded to learn what loads.
    'bpf/canary': {'bpf/wire', 'bpf/lib'},
    'userspace/base': set(),
    'userspace/model': {'userspace/base', 'bpf/wire'},
    'userspace/decode': {'userspace/base', 'userspace/model', 'bpf/wire'},
    'userspace/enrich': {'userspace/base', 'userspace/model'},
    # policy: rules are YAML too, and read by the same bounded reader with the same words for what is wrong.
    'userspace/detect': {'userspace/base', 'userspace/model', 'userspace/policy'},
    'userspace/respond': {'userspace/base', 'userspace/model'},
    # bpf/canary: the header that its canaries and the probe share.
    'userspace/kernel': {'userspace/base', 'userspace/model', 'userspace/respond', 'bpf/wire', 'bpf/canary'},
    'userspace/policy': {'userspace/base', 'userspace/model', 'bpf/wire'},
    'userspace/dns': {'userspace/base', 'userspace/model', 'bpf/wire'},
    # bpf/wire (no library, values only): slots and generations are the kernel's, and the registry hands them out.
    'userspace/sandbox': {'userspace/base', 'userspace/model', 'userspace/policy', 'userspace/respond', 'bpf/wire'},
    # bpf/wire: the bits of the grants, so that seccomp and the programs go by one list.
    'userspace/launch': {'userspace/base', 'userspace/model', 'userspace/policy', 'userspace/api', 'bpf/wire'},
    'userspace/api': {'userspace/base', 'userspace/model'},
    # What the agent shows of itself: values, and a server that knows nothing else of it.
    'userspace/metrics': {'userspace/base'},
    'userspace/guest': {'userspace/base', 'userspace/model', 'userspace/api'},
    # The protocol between a container runtime and its plugins: bytes, and one socket.
    'userspace/nri': {'userspace/base'},
    # nri: pods are values that its messages are turned into.
    'userspace/orchestrator': {'userspace/base', 'userspace/model', 'userspace/sandbox', 'userspace/nri'},
    # The stages of an event's path, and the interface of what stands at its end.
    'userspace/pipeline': {'userspace/base', 'userspace/model', 'userspace/decode', 'userspace/enrich', 'userspace/detect',
                           'userspace/respond', 'userspace/kernel', 'userspace/policy', 'userspace/dns', 'userspace/sandbox',
                           'bpf/wire', 'exporters/exporter.h'},
    # What a tool may be asked to do, and what may come back. policy: the bounded YAML reader and the patterns of paths.
    'userspace/contract': {'userspace/base', 'userspace/model', 'userspace/policy'},
    # What objects of a cluster say, read by the same bounded reader of YAML; no agent, no kernel.
    'userspace/k8s': {'userspace/base', 'userspace/policy'},
    'userspace/timeline': {'userspace/base', 'userspace/model'},
    'userspace/cmd': {'*'},
    'exporters': {'userspace/base', 'userspace/model'},
    # Tests that cross rooms see whatever they test; nothing but tests may include them.
    'tests': {'*'},
    'vmtests': {'userspace/base'},
}

# More edges for the tests, fuzzers and benchmarks of a room (x_test.cc and its like); they count for cycles too.
TEST_EDGES = {
    # A test of the verdicts in the kernel reads its policies as people write them.
    'userspace/kernel': {'userspace/policy'},
}

# Third-party headers -> the rooms that may include them. What is not listed is free.
LIBRARIES = {
    # All of libbpf in one room, so that no other can hold a map or a program. (bpf/ itself uses the helpers' headers.)
    r'(bpf/(libbpf|bpf|btf)\.h|.*\.skel\.h)': {'userspace/kernel', 'tests'},
    # YAML is read where documents are compiled, and in the agent's own configuration.
    r'yaml-cpp/.*': {'userspace/policy', 'userspace/detect', 'userspace/cmd', 'tests'},
    # A second reader of DNS messages, to test ours by.
    r'ldns/.*': {'tests'},
    # gzip is undone where files are opened.
    r'zlib\.h': {'userspace/cmd', 'tests'},
    # JSON as values: results are hostile, so they are read in one place.
    r'(nlohmann|valijson)/.*': {'userspace/contract', 'tests'},
    r'prometheus/.*': {'userspace/metrics', 'tests'},
    # The node's signature under the events that leave it.
    r'sodium\.h': {'userspace/pipeline', 'tests'},
    r'librdkafka/.*': {'exporters', 'tests'},
    r'curl/.*': {'exporters'},
    # userspace/model: names of system calls.
    r'seccomp\.h': {'userspace/launch', 'userspace/model', 'tests'},
    r'CLI/.*': {'userspace/cmd', 'tests'},
    r'hs/.*': {'userspace/detect'},
    r're2/.*': {'userspace/contract', 'userspace/decode', 'userspace/detect', 'userspace/policy', 'userspace/enrich', 'userspace/model', 'userspace/cmd', 'tests'},
}
