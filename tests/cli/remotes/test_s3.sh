#!/usr/bin/env bash
# S3 with verified signatures: kernels are sent and fetched, also leases, and a wrong secret is refused.
. tests/cli/lib.sh
. tests/cli/remotes/servers.sh

venv_python=${VENV:-$BUILD/venv}/bin/python
run "$venv_python" tests/cli/remotes/s3_server.py --check
case $status in
0) ok "the server takes botocore's signatures, and no changed ones" ;;
77 | 127) skip "the server is checked by botocore" "there is no botocore (pip install botocore)" ;;
*) not_ok "the server takes botocore's signatures, and no changed ones" "$(tail -n 3 "$err")" ;;
esac

"$interpreter" tests/cli/remotes/s3_server.py access-key its/secret+key eu-west-1 >"$work/port" 2>"$work/refused" &
servers+=($!)
until_it test -s "$work/port" || { not_ok 'set-up' "$(cat "$work/refused")" && finish; }
export AOTICACHE_REMOTE="s3://kernels/team?region=eu-west-1&endpoint=http://127.0.0.1:$(cat "$work/port") unsigned=allow timeout=20s"
export AWS_ACCESS_KEY_ID=access-key AWS_SECRET_ACCESS_KEY=its/secret+key AOTICACHE_KEYS=$work/keys

at() { env AOTICACHE_DIR="$work/$1" "${@:2}"; } # CACHE COMMAND...
for size in 3 4; do
    AOTICACHE_REMOTE='' run at first aoticache run aten::abs --input "float32:$size=-2" --hook c --json
    [ "$status" = 0 ] || { not_ok 'set-up' 'the kernel does not compile' && finish; }
done
try 'what is here is sent' 0 at first aoticache push --all
prints 'all of it' '^sent 2 entries'
try 'and comes to another cache' 0 at second aoticache pull --all
run at second aoticache ls --json
is 'which has both' 2 "$(grep -c '"key"' "$out")"
try 'a miss fetches' 0 at third aoticache run aten::abs --input float32:3=-2 --hook c --json
member 'from the remote' source fetched
try 'a compile there is sent, under a lease' 0 at third aoticache run aten::abs --input float32:7=-2 --hook c --json
member 'it was compiled' source compiled
try 'and found from elsewhere' 0 at fourth aoticache run aten::abs --input float32:7=-2 --hook c --json
member 'without a compile' source fetched
is 'no request was refused' '' "$(cat "$work/refused")"

# More than a mebibyte: for such sizes libcurl first asks whether it may send it.
if [ "$(uname -m)" = x86_64 ]; then
    head -c 1500000 /dev/urandom >"$work/noise"
    cp -r "$BUILD/share/aoticache/kernels" "$work/kernels"
    echo "static __attribute__((noinline)) void noise(void) { __asm__ volatile(\"jmp 1f; .incbin \\\"$work/noise\\\"; 1:\"); }" \
        >"$work/kernels/noise.h"
    sed -i -e 's|^static inline TYPE apply|#include "noise.h"\n&|' -e 's|^{|{ noise();|' "$work/kernels/aten_abs.c"
    try 'a kernel of more than a mebibyte' 0 at large aoticache run aten::abs --input float32:5=-2 --hook c --kernels "$work/kernels" --json
    holds 'is one' [ "$(find "$work/large/objects" -type f -size +1400k | wc -l)" -ge 1 ]
    try 'comes to another cache' 0 at fifth aoticache pull --all
    holds 'as a whole' [ "$(find "$work/fifth/objects" -type f -size +1400k | wc -l)" -ge 1 ]
    is 'and no request was refused' '' "$(cat "$work/refused")"
else
    skip 'an object of more than a mebibyte' 'the noise is skipped by an instruction of x86-64'
fi

# moto, with authentication enabled after the first requests, which make a user and a bucket.
if "$venv_python" -c 'import boto3, moto.server' 2>/dev/null; then
    port=$(free_port)
    INITIAL_NO_AUTH_ACTION_COUNT=4 "$venv_python" tests/helpers/moto_server.py -H 127.0.0.1 -p "$port" >"$work/moto.log" 2>&1 &
    servers+=($!)
    until_it python3 -c 'import socket, sys; socket.create_connection(("127.0.0.1", int(sys.argv[1]))).close()' "$port"
    cat >"$work/setup.py" <<'PYTHON'
import json, sys
import boto3
use = dict(endpoint_url=sys.argv[1], region_name="eu-west-1", aws_access_key_id="x", aws_secret_access_key="x")
iam = boto3.client("iam", **use)
iam.create_user(UserName="fleet")
policy = {"Version": "2012-10-17", "Statement": [{"Effect": "Allow", "Action": "s3:*", "Resource": "*"}]}
iam.put_user_policy(UserName="fleet", PolicyName="all", PolicyDocument=json.dumps(policy))
boto3.client("s3", **use).create_bucket(Bucket="kernels", CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
key = iam.create_access_key(UserName="fleet")["AccessKey"]
print(key["AccessKeyId"], key["SecretAccessKey"])
PYTHON
    try 'moto that asks who it is: a user and a bucket' 0 "$venv_python" "$work/setup.py" "http://127.0.0.1:$port"
    read -r AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY <"$out"
    ours=$AOTICACHE_REMOTE
    export AOTICACHE_REMOTE="s3://kernels/team?region=eu-west-1&endpoint=http://127.0.0.1:$port unsigned=allow timeout=20s"
    try 'moto that asks who it is: all is sent' 0 at first aoticache push --all
    prints 'moto that asks who it is: all of it' '^sent [2-9] entries'
    try 'moto that asks who it is: and comes' 0 at sixth aoticache pull --all
    holds 'moto that asks who it is: it did ask' [ "$(AWS_SECRET_ACCESS_KEY=other at first aoticache push --all --replace 2>&1 | grep -c SignatureDoesNotMatch)" -ge 1 ]
    AOTICACHE_REMOTE=$ours AWS_ACCESS_KEY_ID=access-key AWS_SECRET_ACCESS_KEY=its/secret+key
else
    skip 'moto that asks who it is' 'there is no moto or boto3 (pip install "moto[s3,server]")'
fi

AOTICACHE_REMOTE=${AOTICACHE_REMOTE/eu-west-1/eu-west-2} try 'with another region nothing is sent' 1 at first aoticache push --all
says 'and it is said' 'the region of the URL is not that of the bucket .AuthorizationHeaderMalformed.'
export AWS_SECRET_ACCESS_KEY=another
try 'with another secret nothing is sent' 1 at first aoticache push --all
says 'and it is said' 'the secret key does not belong to the access key, or the region is wrong .SignatureDoesNotMatch.'
holds 'for its signature' grep -q SignatureDoesNotMatch "$work/refused"
finish
