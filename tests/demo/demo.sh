#!/bin/bash
# A real interpreter at work in a sandbox, and five attacks that are stopped, each with its reason and
# the lock that stopped it. The same script under mode: observe shows that every attack works where
# nothing stops it. What is printed and asserted comes from the events of the kernel.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
bin=${STOCKADE_BIN_DIR:-$root/build/bin}
here=$root/tests/demo
# Not in /tmp: the policy denies /tmp, and what it denies may not be shown inside either.
work=$(mktemp -d /var/tmp/stockade-demo.XXXXXX)
netns=stockade-demo-$$
servers=()
failures=0

bold= dim= green= red= off=
if [[ -t 1 && -z ${NO_COLOR:-} ]]; then
    bold=$'\e[1m' dim=$'\e[2m' green=$'\e[32m' red=$'\e[31m' off=$'\e[0m'
fi
say() { printf '%s\n' "$*"; }
good() { say "  ${green}ok${off}    $*"; }
bad() { say "  ${red}FAILED${off} $*"; failures=$((failures + 1)); }

cleanup() {
    [[ ${#servers[@]} == 0 ]] || kill "${servers[@]}" 2>/dev/null || true
    ip netns del "$netns" 2>/dev/null || true
    ip link del skdemo0 2>/dev/null || true
    if [[ -s $work/run/agent.lock ]]; then
        kill "$(<"$work/run/agent.lock")" 2>/dev/null || true
        for _ in $(seq 100); do [[ -e $work/run/agent.sock ]] || break; sleep 0.05; done
    fi
    rm -rf "$work" /sys/fs/bpf/stockade-demo
    rmdir /sys/fs/cgroup/{unified/,}stockade-demo 2>/dev/null || true
}
trap cleanup EXIT

# --- the stage -----------------------------------------------------------------------------------------------

# A credential that anybody may read, in a directory that is handed to the tool.
mkdir -p "$work"/{in/home/.ssh,out,run}
chmod 755 "$work" "$work"/in
echo "DEMO-PRIVATE-KEY-1234" >"$work/in/home/.ssh/id_ed25519"
chmod 644 "$work/in/home/.ssh/id_ed25519"
cp "$here/tool.py" "$work/in/tool.py"
# What an agent was asked to work on, and may read.
for i in $(seq 12); do echo "customer $i,card 4000-0000-0000-$((1000 + i))"; done >"$work/in/customers.csv"
chmod -R a+rX "$work/in"

# A listener that is really there: in a network of its own, one hop behind this host.
address=198.51.100.2
ip netns add "$netns"
ip link add skdemo0 type veth peer name skdemo1 netns "$netns"
ip addr add 198.51.100.1/30 dev skdemo0
ip link set skdemo0 up
# What comes back from the listener is forwarded to the sandbox, on this link of ours alone.
echo 1 >/proc/sys/net/ipv4/conf/skdemo0/forwarding
ip -n "$netns" addr add $address/30 dev skdemo1
ip -n "$netns" link set skdemo1 up
ip -n "$netns" link set lo up
ip -n "$netns" route add default via 198.51.100.1
ip netns exec "$netns" python3 -c '
import socket, sys
s = socket.create_server(("", 8080)); print("up", flush=True)
while True:
    c, _ = s.accept(); c.sendall(b"hello from outside\n"); c.close()
' >"$work/listener" &
servers+=($!)
ip netns exec "$netns" python3 "$here/name_server.py" $address "$work/received" >"$work/name_server" &
servers+=($!)
for _ in $(seq 100); do [[ -s $work/listener && -s $work/name_server ]] && break; sleep 0.05; done
[[ $(python3 -c "import socket; print(socket.create_connection(('$address', 8080), 5).recv(64).decode())") == hello* ]] ||
    { say "the demo's listener is not reachable from this host"; exit 1; }

for mode in enforce observe; do sed "s/@MODE@/$mode/" "$here/policy.yaml.in" >"$work/$mode.yaml"; done
# An agent of the demo's own, so that it does not disturb one that runs here.
cat >"$work/config.yaml" <<CONFIG
runtime_dir: $work/run
state_dir: $work/state
policy_dirs: [$root/rules/policies]
pin_dir: /sys/fs/bpf/stockade-demo
cgroup_name: stockade-demo
CONFIG

# run MODE NAME STEP...: events in NAME.events, output in NAME.text, result in NAME.json, status in $status
run() {
    local mode=$1 name=$2
    shift 2
    status=0
    "$bin/stockade" --config "$work/config.yaml" run --policy "$work/$mode.yaml" \
        --session demo --tool python --in "$work/in" --out "$work/out" --timeout 60s \
        --events "$work/$name.events" --result "$work/$name.json" -- \
        /usr/bin/python3 /in/tool.py "$address:8080" "$@" </dev/null >"$work/$name.text" 2>"$work/$name.err" || status=$?
    sed "s/^/  ${dim}tool${off}  /" "$work/$name.text"
    sed "s/^/  ${dim}      /; s/\$/${off}/" "$work/$name.err"
}

timeline() {  # of one run: steps and refusals; what was only done is left out
    "$bin/stockade" timeline demo "$1" | sed '1,/^$/d' | { grep -v -E '^ *\+[^[]*\[1\] +work ' || true; } | sed 's/^/  /'
}

# refused NAME JQ-CONDITION: the events hold a refusal of that kind by a lock of ours.
refused() {
    local lock
    lock=$(jq -rs "[.[] | select(.lock == \"bpf\" or .lock == \"landlock\") | select($2)][0].lock // \"\"" "$work/$1.events")
    if [[ -n $lock ]]; then good "refused, lock: $lock"; else bad "no event with a lock of ours says that $1 was refused"; fi
    if grep -q "^$1: done" "$work/$1.text"; then bad "the tool says that $1 worked"; fi
}

# --- the play ------------------------------------------------------------------------------------------------

say "${bold}1. Honest work${off}: compute, and write a result"
run enforce work work
if [[ $status == 0 && $(jq -r .sum_of_squares "$work/out/result.json" 2>/dev/null) == 332833500 ]]; then
    good "exit status 0, result.json is the caller's"
else
    bad "the work did not succeed (status $status)"
fi

say "${bold}2. A shell${off}: subprocess.run([\"/bin/bash\", ...])"
run enforce bash bash
refused bash '.kind == "exec" and (.exec.path | endswith("/bash"))'
if [[ $status == 137 && $(jq -r .end "$work/bash.json") == policy ]]; then
    good "the sandbox was killed: exit status 137"
else
    bad "the sandbox was not killed by its policy (status $status)"
fi
timeline "$work/bash.events"

say "${bold}3. A credential${off}: open(\"/in/home/.ssh/id_ed25519\"), readable by mode bits"
run enforce credential credential
refused credential '.kind == "file" and (.file.path | endswith("/.ssh/id_ed25519"))'
timeline "$work/credential.events"

say "${bold}4. A write outside /out${off}: /tmp is mounted writable, the policy denies it"
run enforce write write
refused write '.kind == "file" and (.file.path | endswith("/tmp/dropper.sh"))'
timeline "$work/write.events"

say "${bold}5. A connection out${off}: to a listener at $address:8080 that is really there"
run enforce connect connect
refused connect '.kind == "net" and .net.address == "'$address'"'
timeline "$work/connect.events"

# received: what the name server of evil.test has read, and in $bytes how much.
received() {
    bytes=$(stat -c %s "$work/received" 2>/dev/null || echo 0)
    say "  ${dim}name server${off}  has $bytes of $(stat -c %s "$work/in/customers.csv") bytes:"
    head -n 3 "$work/received" 2>/dev/null | sed "s/^/  ${dim}name server${off}  | /" || true
}

say "${bold}6. A file in DNS names${off}: customers.csv, 25 bytes a name, below evil.test"
run enforce exfiltrate exfiltrate
refused exfiltrate '.kind == "dns" and (.dns.name | endswith(".evil.test"))'
received
if [[ $bytes -le 256 ]]; then good "the name server has no more than the zone's 256 bytes"; else bad "the name server has $bytes bytes"; fi
timeline "$work/exfiltrate.events"

say "${bold}7. The same script under mode: observe${off}: nothing stops it, everything is reported"
rm -f "$work/received"
run observe observe work bash credential write connect exfiltrate
for step in work bash credential write connect exfiltrate; do
    if grep -q "^$step: done" "$work/observe.text"; then good "$step: its effect happened"; else bad "$step did not work under observe"; fi
done
received
if cmp -s "$work/received" "$work/in/customers.csv"; then good "the name server has all of the file"; else bad "the file did not arrive under observe"; fi
[[ $status == 0 ]] || bad "exit status $status under observe"
timeline "$work/observe.events" | sed -n 1,16p

say
page=$bin/../demo.html
cat "$work"/{work,bash,credential,write,connect,exfiltrate}.events | "$bin/stockade" timeline demo - -o html >"$page"
say "All of it as one page: $(realpath "$page")"
say
if [[ $failures == 0 ]]; then
    say "${green}The work succeeded, five attacks were stopped, and each works where nothing stops it.${off}"
else
    say "${red}$failures checks failed.${off}"
    exit 1
fi
