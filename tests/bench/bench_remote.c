/*
 * Benchmarks of remotes on the loopback: many kernels from Redis and nginx, the first one on a machine that has none,
 * and the check of a signature. The servers are started here, on free ports; if one is not installed, its lines are
 * missing.
 *
 * Both sides alternate in the same run, in fresh processes, and fetch the same frames of zstd from the same server:
 * - Ours is a pull into a new cache: lists, records, manifests and libraries are fetched, signatures checked, objects
 *   unpacked, hashed, stored under their digests and made durable, and an index is written.
 * - The baseline for nginx is one curl for all objects (manifests, too) over one connection, then zstd -d, sync -f and
 *   sha256sum.
 * - The baseline for Redis is a bare loop of GETs on a socket, which is less than hiredis does, that unpacks in memory
 *   with libzstd and writes each file; then sync -f and sha256sum.
 * - The baseline for one kernel does the same in a bare loop: it requests record, manifest and library on a socket,
 *   unpacks with libzstd, hashes, writes both files and waits for the disk as often as storing one kernel does. The
 *   first kernel of a process pays for loading the module, libzstd and the connection; the next one does not.
 *
 * The libraries are pieces of this program's own code, each made unique, so that they compress as libraries do.
 * Prints one JSON object per line (scripts/bench collects them). BENCH_REMOTE_ENTRIES (256), BENCH_REMOTE_BYTES
 * (360000), BENCH_REMOTE_ROUNDS (5). BENCH_QUICK=1 pulls 64 kernels, three times.
 */
#include <arpa/inet.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <netinet/tcp.h>
#include <openssl/evp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/names.h"
#include "base/syscalls.h"
#include "cache/remote/remote.h"
#include "cache/trust/trust_internal.h"
#include "cache/trust/trust.h"
#include "index/index.h"
#include "tests/bench/bench.h"
#include "tests/bench/libraries.h"

#define MOST_ROUNDS 64
#define CHECKS 2000
/* A pull also checks signatures and writes records and an index: three tenths of the baseline's time. */
#define PULL_LIMIT 1.3
/*
 * One kernel alone is recorded in an index, after a check of its signature; for the first one of a process the module and its
 * libraries are loaded and the index is made. 2.2 and 2 were measured with an fsync of 0.2 ms. On a slow disk both
 * sides only wait, so the number of waits has a separate limit.
 */
#define FIRST_LIMIT 3.5
#define NEXT_LIMIT 2.5
#define WAITS_LIMIT 1.25
/* Encoding the statement and searching the lists of keys may take a quarter of the time of the signature itself. */
#define SIGNATURE_LIMIT 1.25
/*
 * The number of waits for the disk when storing one kernel: for files, for their directories, for the index's
 * transaction.
 */
#define WAITS 9
#define SETTINGS " connect-timeout=5s timeout=60s"

static size_t rounds = 5;
static aoticache_secret_key *signer;
static char trusted[AOTICACHE_PUBLIC_KEY_TEXT_BYTES];

/* The files on a server: a manifest and a library of each entry. */
struct kernel {
    aoticache_key key;
    char manifest[AOTICACHE_DIGEST_HEX_BYTES], library[AOTICACHE_DIGEST_HEX_BYTES];
};
static struct kernel *kernels;
static size_t kernel_count;

struct server {
    const char *name;
    bool is_http;
    int port;
    pid_t pid; /* 0: not installed */
    char url[128];
};
static struct server servers[2] = {{.name = "Redis"}, {.name = "nginx", .is_http = true}};

static void stop_servers(void)
{
    for (size_t i = 0; i < 2; i++)
        if (servers[i].pid > 0) {
            kill(servers[i].pid, SIGTERM);
            waitpid(servers[i].pid, NULL, 0);
        }
}

static pid_t owner; /* the process that started the servers */

static void fail(const char *what, const char *detail)
{
    fprintf(stderr, "bench_remote: %s: %s\n", what, detail);
    if (getpid() == owner)
        stop_servers();
    _exit(1);
}

static void AOTICACHE_PRINTF(2, 3) write_text(const char *name, const char *format, ...)
{
    char path[600];
    va_list arguments;
    snprintf(path, sizeof path, "%s/%s", root, name);
    FILE *file = fopen(path, "we");
    if (file == NULL)
        fail(path, strerror(errno));
    va_start(arguments, format);
    vfprintf(file, format, arguments);
    va_end(arguments);
    if (fclose(file) != 0)
        fail(path, strerror(errno));
}

/* ---- servers ---- */

static int connect_to(int port)
{
    const struct sockaddr_in address = {
        .sin_family = AF_INET, .sin_port = htons((uint16_t)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    const int one = 1, fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (const struct sockaddr *)&address, sizeof address) == 0) {
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        return fd;
    }
    close(fd);
    return -1;
}

static int free_port(void)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t size = sizeof address;
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (struct sockaddr *)&address, sizeof address) != 0 ||
        getsockname(fd, (struct sockaddr *)&address, &size) != 0)
        fail("a port", strerror(errno));
    close(fd);
    return ntohs(address.sin_port);
}

/* Returns whether the server responds within ten seconds. */
static bool comes_up(struct server *server)
{
    for (int i = 0; i < 200; i++) {
        const int fd = connect_to(server->port);
        if (fd >= 0) {
            close(fd);
            return true;
        }
        if (waitpid(server->pid, NULL, WNOHANG) == server->pid) /* the program does not exist */
            break;
        nanosleep(&(struct timespec){.tv_nsec = 50000000}, NULL);
    }
    server->pid = 0;
    return false;
}

static void start(struct server *server, const char *script)
{
    char port[16];
    snprintf(port, sizeof port, "%d", server->port);
    server->pid = fork();
    if (server->pid == 0) {
        const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
        dup2(null, 1);
        dup2(null, 2);
        if (chdir(root) == 0)
            execl("/bin/sh", "sh", "-c", script, root, port, (char *)NULL);
        _exit(127);
    }
    if (!comes_up(server))
        bench_left_out(server->is_http ? "pulls from nginx" : "pulls from Redis", "the server is not installed");
}

static void start_servers(void)
{
    servers[0].port = free_port();
    snprintf(servers[0].url, sizeof servers[0].url, "redis://127.0.0.1:%d", servers[0].port);
    start(&servers[0], "exec redis-server --port \"$1\" --bind 127.0.0.1 --dir \"$0\" --save '' --appendonly no "
                       "--daemonize no");
    servers[1].port = free_port();
    snprintf(servers[1].url, sizeof servers[1].url, "http://127.0.0.1:%d", servers[1].port);
    write_text("nginx.conf",
               "daemon off; master_process off; pid %s/nginx.pid; error_log %s/nginx.log; %s worker_processes 1;\n"
               "events {} http { access_log off; client_body_temp_path %s/body; proxy_temp_path %s/proxy;\n"
               "fastcgi_temp_path %s/fastcgi; uwsgi_temp_path %s/uwsgi; scgi_temp_path %s/scgi;\n"
               "keepalive_requests 100000; sendfile on; tcp_nopush on;\n"
               "server { listen 127.0.0.1:%d; root %s/data; client_max_body_size 1g;\n"
               "location / { dav_methods PUT; create_full_put_path on; } } }\n",
               root, root, geteuid() == 0 ? "user root;" : "", root, root, root, root, root, servers[1].port, root);
    start(&servers[1], "mkdir -p data && PATH=$PATH:/usr/sbin && exec nginx -e \"$0/nginx.log\" -c \"$0/nginx.conf\"");
}

/* ---- a cache whose entries are on the servers ---- */

static aoticache_cache *open_cache(const char *name, const char *remote)
{
    char path[600];
    aoticache_cache *cache = NULL;
    aoticache_error error = {.message = ""};
    aoticache_cache_options options = AOTICACHE_CACHE_OPTIONS_INIT;
    snprintf(path, sizeof path, "%s/%s", root, name);
    options.directory = path;
    options.max_bytes = UINT64_MAX;
    options.key_directory = "";
    options.trusted_keys = trusted;
    options.remote = remote;
    if (aoticache_cache_open(&options, &cache, &error) != AOTICACHE_OK)
        fail("open", error.message);
    return cache;
}

static aoticache_request *request_of(size_t number)
{
    aoticache_request *request = NULL;
    aoticache_error error = {.message = ""};
    if (aoticache_request_create("aten::abs", (aoticache_device){.type = 0, .index = -1}, &request, &error) !=
            AOTICACHE_OK ||
        aoticache_request_add_int(request, NULL, (int64_t)number, &error) != AOTICACHE_OK)
        fail("request", error.message);
    return request;
}

static void put(aoticache_cache *cache, size_t number)
{
    char path[600];
    aoticache_error error = {.message = ""};
    aoticache_artifact *artifact = NULL;
    snprintf(path, sizeof path, "%s/made.so", root);
    write_library(path, number);
    aoticache_file file = {.name = "library.so", .path = path};
    aoticache_product product = AOTICACHE_PRODUCT_INIT;
    product.files = &file;
    product.file_count = 1;
    aoticache_request *request = request_of(number);
    if (aoticache_cache_put(cache, request, &product, &artifact, &error) != AOTICACHE_OK ||
        aoticache_request_key(request, &kernels[number].key, &error) != AOTICACHE_OK)
        fail("put", error.message);
    aoticache_digest_to_hex(&aoticache_artifact_get_info(artifact)->digest, kernels[number].manifest);
    aoticache_digest_to_hex(&aoticache_artifact_get_info(artifact)->library, kernels[number].library);
    aoticache_artifact_unref(artifact);
    aoticache_request_free(request);
}

static void make_source(void)
{
    aoticache_error error = {.message = ""};
    const aoticache_status status = aoticache_secret_key_generate("bench", &signer, &error);
    if (status == AOTICACHE_UNSUPPORTED) {
        fprintf(stderr, "bench_remote: %s\n", error.message);
        bench_left_out("remotes and signatures", "libcrypto cannot make a key");
        _exit(0);
    }
    if (status != AOTICACHE_OK || (kernels = calloc(entries, sizeof *kernels)) == NULL)
        fail("keys", error.message);
    aoticache_public_key_format(aoticache_secret_key_public(signer), trusted);
    aoticache_cache *cache = open_cache("source", "");
    for (kernel_count = 0; kernel_count < entries; kernel_count++)
        put(cache, kernel_count);
    aoticache_cache_close(cache);
}

/* Writes the list with which sha256sum checks what a baseline fetched, and the addresses for curl. */
static void write_lists(void)
{
    char path[600];
    snprintf(path, sizeof path, "%s/sums", root);
    FILE *sums = fopen(path, "we");
    snprintf(path, sizeof path, "%s/urls", root);
    FILE *urls = fopen(path, "we");
    if (sums == NULL || urls == NULL)
        fail(path, strerror(errno));
    for (size_t i = 0; i < 2 * kernel_count; i++) {
        const char *name = i % 2 == 0 ? kernels[i / 2].manifest : kernels[i / 2].library;
        fprintf(sums, "%s  %s\n", name, name);
        fprintf(urls, "url = \"%s/cas/%s\"\noutput = \"%s.zst\"\n", servers[1].url, name, name);
    }
    if (fclose(sums) != 0 || fclose(urls) != 0)
        fail(path, strerror(errno));
}

/* ---- measuring in fresh processes ---- */

struct times {
    double first, second; /* seconds */
    int waits;            /* waits for the disk, of the second one */
};
static struct times *shared;
static atomic_int waits;

/* Counts waits for the disk: a hook of base/syscalls.h, which sees SQLite's calls too. */
static int count_wait(void *user, const char *call, const char *path)
{
    (void)user, (void)path;
    if (strstr(call, "sync") != NULL)
        atomic_fetch_add(&waits, 1);
    return 0;
}

/* Measures in a child, so that nothing is loaded yet. */
static struct times in_child(void (*measure)(const struct server *), const struct server *server)
{
    int result = 0;
    const pid_t child = fork();
    if (child == 0) {
        measure(server);
        _exit(0);
    }
    if (child < 0 || waitpid(child, &result, 0) != child || !WIFEXITED(result) || WEXITSTATUS(result) != 0)
        fail(server->name, "a process that measures failed");
    return *shared;
}

static double since(uint64_t begun)
{
    return (double)(aoticache_monotonic_ns() - begun) * 1e-9;
}

static void push(const struct server *server)
{
    char remote[200];
    const aoticache_secret_key *const signers[] = {signer};
    aoticache_transfer_options options = AOTICACHE_TRANSFER_OPTIONS_INIT;
    aoticache_transfer_report report;
    aoticache_error error = {.message = ""};
    options.signers = signers;
    options.signer_count = 1;
    snprintf(remote, sizeof remote, "%s" SETTINGS, server->url);
    aoticache_cache *cache = open_cache("source", "");
    if (aoticache_cache_push(cache, remote, &options, &report, &error) != AOTICACHE_OK || report.entries != entries)
        fail("push", error.message);
    aoticache_cache_close(cache);
    shared->first = (double)report.archive_bytes / (double)report.bytes;
}

static void pull(const struct server *server)
{
    char remote[200];
    aoticache_transfer_report report;
    aoticache_error error = {.message = ""};
    snprintf(remote, sizeof remote, "%s read-only" SETTINGS, server->url);
    const uint64_t begun = aoticache_monotonic_ns();
    aoticache_cache *cache = open_cache("target", remote);
    if (aoticache_cache_pull(cache, NULL, NULL, &report, &error) != AOTICACHE_OK || report.entries != entries)
        fail("pull", error.message);
    aoticache_cache_close(cache);
    shared->first = since(begun);
}

static aoticache_status must_not_compile(void *user, const aoticache_request *request, const char *directory,
                                         aoticache_deliver_fn deliver, void *deliver_user, aoticache_error *ret_error)
{
    (void)user, (void)request, (void)directory, (void)deliver, (void)deliver_user;
    return aoticache_error_set(ret_error, AOTICACHE_COMPILE_FAILED, "it was not fetched");
}

static double get_one(aoticache_cache *cache, size_t number)
{
    aoticache_artifact *artifact = NULL;
    aoticache_error error = {.message = ""};
    aoticache_request *request = request_of(number);
    const uint64_t begun = aoticache_monotonic_ns();
    if (aoticache_cache_get_or_compile(cache, request, NULL, must_not_compile, NULL, &artifact, &error) !=
            AOTICACHE_OK ||
        aoticache_artifact_get_info(artifact)->source != AOTICACHE_SOURCE_FETCHED)
        fail("get", error.message);
    const double seconds = since(begun);
    aoticache_artifact_unref(artifact);
    aoticache_request_free(request);
    return seconds;
}

static void get_two(const struct server *server)
{
    char remote[200];
    snprintf(remote, sizeof remote, "%s read-only" SETTINGS, server->url);
    aoticache_index_syscall_hooks_install();
    aoticache_syscall_hook_set(count_wait, NULL);
    aoticache_cache *cache = open_cache("target", remote);
    shared->first = get_one(cache, 0);
    atomic_store(&waits, 0);
    shared->second = get_one(cache, 1);
    shared->waits = atomic_load(&waits);
    aoticache_cache_close(cache);
}

/* ---- the baselines ---- */

/* Reads until there are `wanted` bytes. */
static size_t read_until(int fd, char *buffer, size_t have, size_t wanted, size_t space)
{
    while (have < wanted) {
        const ssize_t got = read(fd, buffer + have, space - have);
        if (got <= 0)
            fail("a bare connection", got < 0 ? strerror(errno) : "it was closed");
        have += (size_t)got;
    }
    return have;
}

/* Makes one request on an open connection. *ret_body: in the buffer. Returns the size of the body. */
static size_t ask(const struct server *server, int fd, const char *name, char *buffer, size_t space, char **ret_body)
{
    char request[300], *end = NULL, *length = NULL;
    const size_t name_length = strlen("aoticache/") + strlen(name);
    const int size =
        server->is_http
            ? snprintf(request, sizeof request, "GET /%s HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", name)
            : snprintf(request, sizeof request, "*2\r\n$3\r\nGET\r\n$%zu\r\naoticache/%s\r\n", name_length, name);
    const char *ends = server->is_http ? "\r\n\r\n" : "\r\n";
    size_t have = 0;
    if (write(fd, request, (size_t)size) != size)
        fail("a bare connection", strerror(errno));
    do {
        have = read_until(fd, buffer, have, have + 1, space - 1);
        buffer[have] = '\0';
    } while ((end = strstr(buffer, ends)) == NULL);
    length = server->is_http ? strcasestr(buffer, "content-length:") : buffer;
    const bool is_there = strncmp(buffer, "HTTP/1.1 200", 12) == 0 || (buffer[0] == '$' && buffer[1] != '-');
    if (length == NULL || !is_there)
        fail(name, "it is not on the server");
    const size_t body = strtoul(length + (server->is_http ? strlen("content-length:") : 1), NULL, 10);
    *ret_body = end + strlen(ends);
    read_until(fd, buffer, have, (size_t)(*ret_body - buffer) + body + (server->is_http ? 0 : 2), space);
    return body;
}

static void write_file(const char *name, const void *from, size_t size, bool is_durable)
{
    char path[600];
    snprintf(path, sizeof path, "%s/theirs/%s", root, name);
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (fd < 0 || write(fd, from, size) != (ssize_t)size || (is_durable && fsync(fd) != 0))
        fail(path, strerror(errno));
    close(fd);
}

struct peer {
    const struct server *server;
    int fd;
    char *buffer, *plain;
    size_t space;
    size_t (*decompress)(void *, size_t, const void *, size_t);
};

static struct peer connect_peer(const struct server *server)
{
    struct peer peer = {.server = server, .space = 2 * bytes + 65536};
    void *library = dlopen("libzstd.so.1", RTLD_NOW);
    void *symbol = library != NULL ? dlsym(library, "ZSTD_decompress") : NULL;
    memcpy(&peer.decompress, &symbol, sizeof peer.decompress);
    peer.buffer = malloc(peer.space);
    peer.plain = malloc(peer.space);
    peer.fd = connect_to(server->port);
    if (symbol == NULL || peer.buffer == NULL || peer.plain == NULL || peer.fd < 0)
        fail(server->name, "no libzstd, no memory or no connection");
    return peer;
}

/* Fetches one object, unpacks it and writes it to a file of its name. Returns its size. */
static size_t fetch_object(const struct peer *peer, const char *hex, bool is_durable)
{
    char name[100], *body;
    snprintf(name, sizeof name, "cas/%s", hex);
    const size_t packed = ask(peer->server, peer->fd, name, peer->buffer, peer->space, &body);
    const size_t size = peer->decompress(peer->plain, peer->space, body, packed);
    if (size > peer->space)
        fail(name, "it cannot be unpacked");
    write_file(hex, peer->plain, size, is_durable);
    return size;
}

static void check_object(const struct peer *peer, const char *hex, size_t size)
{
    unsigned char digest[32];
    char found[AOTICACHE_DIGEST_HEX_BYTES] = "";
    if (EVP_Digest(peer->plain, size, digest, NULL, EVP_sha256(), NULL) != 1)
        fail(hex, "it cannot be hashed");
    for (size_t i = 0; i < sizeof digest; i++)
        snprintf(found + 2 * i, sizeof found - 2 * i, "%02x", digest[i]);
    if (strcmp(found, hex) != 0)
        fail(hex, "what was fetched has another digest");
}

/*
 * Fetches record, manifest and library; both files, and substitutes for directories and index, are on the disk
 * afterwards.
 */
static void fetch_kernel(const struct peer *peer, const struct kernel *kernel)
{
    const char *const objects[] = {kernel->manifest, kernel->library};
    char name[100], hex[AOTICACHE_DIGEST_HEX_BYTES], *body;
    aoticache_digest_to_hex(&kernel->key, hex);
    snprintf(name, sizeof name, "ac/%s", hex);
    ask(peer->server, peer->fd, name, peer->buffer, peer->space, &body);
    for (size_t i = 0; i < 2; i++)
        check_object(peer, objects[i], fetch_object(peer, objects[i], true));
    for (int i = 2; i < WAITS; i++)
        write_file("index", peer->buffer, 4096, true);
}

/* Does what get_two() does, without a cache. */
static void fetch_twice(const struct server *server)
{
    uint64_t begun = aoticache_monotonic_ns();
    struct peer peer = connect_peer(server);
    fetch_kernel(&peer, &kernels[0]);
    shared->first = since(begun);
    begun = aoticache_monotonic_ns();
    fetch_kernel(&peer, &kernels[1]);
    shared->second = since(begun);
    close(peer.fd);
}

static void run_script(const char *script)
{
    int result = 0;
    const pid_t child = fork();
    if (child == 0) {
        if (chdir(root) == 0)
            execl("/bin/sh", "sh", "-c", script, (char *)NULL);
        _exit(127);
    }
    if (child < 0 || waitpid(child, &result, 0) != child || !WIFEXITED(result) || WEXITSTATUS(result) != 0)
        fail(script, "it failed");
}

static void fetch_by_loop(const struct server *server)
{
    const uint64_t begun = aoticache_monotonic_ns();
    struct peer peer = connect_peer(server);
    run_script("mkdir theirs");
    for (size_t i = 0; i < 2 * kernel_count; i++)
        fetch_object(&peer, i % 2 == 0 ? kernels[i / 2].manifest : kernels[i / 2].library, false);
    close(peer.fd);
    run_script("sync -f theirs && cd theirs && sha256sum --quiet -c ../sums");
    shared->first = since(begun);
}

static void fetch_by_curl(const struct server *server)
{
    (void)server;
    const uint64_t begun = aoticache_monotonic_ns();
    run_script("mkdir theirs && cd theirs && curl -sf -K ../urls && zstd -dq --rm -- *.zst && sync -f . && "
               "sha256sum --quiet -c ../sums");
    shared->first = since(begun);
}

/* ---- comparing ---- */

static int by_value(const void *a, const void *b)
{
    const double left = *(const double *)a, right = *(const double *)b;
    return (left > right) - (left < right);
}

static double median(double *values, size_t count)
{
    qsort(values, count, sizeof *values, by_value);
    return values[count / 2];
}

static void compare_pulls(const struct server *server)
{
    double ours[MOST_ROUNDS], theirs[MOST_ROUNDS];
    for (size_t i = 0; i < rounds; i++) {
        remove_directory("target");
        ours[i] = in_child(pull, server).first;
        remove_directory("theirs");
        theirs[i] = in_child(server->is_http ? fetch_by_curl : fetch_by_loop, server).first;
    }
    const double megabytes = (double)entries * (double)bytes * 1e-6;
    const double value = median(ours, rounds), peer_value = median(theirs, rounds);
    printf("{\"name\": \"pull from %s, %zu kernels of %zu kB\", \"value\": %.4g, \"unit\": \"MB/s\", \"peer\": \"%s\", "
           "\"peer_value\": %.4g, \"ratio\": %.4f, \"target\": %g, \"met\": %s}\n",
           server->name, entries, bytes / 1000, megabytes / value,
           server->is_http ? "curl, zstd -d, sync, sha256sum" : "GETs, libzstd, sync, sha256sum",
           megabytes / peer_value, value / peer_value, PULL_LIMIT, value <= PULL_LIMIT * peer_value ? "true" : "false");
    fflush(stdout);
}

static void print_single(const struct server *server, const char *what, double value, double peer_value, double target)
{
    printf(
        "{\"name\": \"%s, %s\", \"value\": %.4g, \"unit\": \"ms\", \"peer\": \"its requests, libzstd, SHA-256, as many "
        "fsyncs\", \"peer_value\": %.4g, \"ratio\": %.4f, \"target\": %g, \"met\": %s}\n",
        what, server->name, value * 1e3, peer_value * 1e3, value / peer_value, target,
        value <= target * peer_value ? "true" : "false");
    fflush(stdout);
}

/* Compares fetches of single kernels, with more rounds, since each is short. */
static void compare_gets(const struct server *server)
{
    double values[4][MOST_ROUNDS], count_of_waits = 0;
    const size_t count = 3 * rounds < MOST_ROUNDS ? 3 * rounds : MOST_ROUNDS;
    for (size_t i = 0; i < count; i++) {
        remove_directory("target");
        remove_directory("theirs");
        run_script("mkdir theirs");
        const struct times ours = in_child(get_two, server), theirs = in_child(fetch_twice, server);
        values[0][i] = ours.first;
        values[1][i] = theirs.first;
        values[2][i] = ours.second;
        values[3][i] = theirs.second;
        count_of_waits = ours.waits;
    }
    print_single(server, "first kernel of a process, fetched", median(values[0], count), median(values[1], count),
                 FIRST_LIMIT);
    print_single(server, "next kernel, fetched", median(values[2], count), median(values[3], count), NEXT_LIMIT);
    printf(
        "{\"name\": \"waits for the disk of a fetched kernel, %s\", \"value\": %g, \"unit\": \"\", \"peer\": \"two files, their "
        "directories, SQLite\", \"peer_value\": %d, \"ratio\": %.4f, \"target\": %g, \"met\": %s}\n",
        server->name, count_of_waits, WAITS, count_of_waits / WAITS, WAITS_LIMIT,
        count_of_waits <= WAITS_LIMIT * WAITS ? "true" : "false");
    fflush(stdout);
}

/* ---- a signature ---- */

/* Measures libcrypto's check of a message of the size of a statement. Both measurements are processor time. */
static double check_bare(const uint8_t *message, size_t size, const uint8_t *signature)
{
    EVP_PKEY *key = EVP_PKEY_new_raw_public_key(EVP_PKEY_ED25519, NULL, aoticache_secret_key_public(signer)->bytes, 32);
    const uint64_t begun = bench_processor_ns();
    for (int i = 0; i < CHECKS; i++) {
        EVP_MD_CTX *context = EVP_MD_CTX_new();
        if (EVP_DigestVerifyInit(context, NULL, NULL, NULL, key) != 1 ||
            EVP_DigestVerify(context, signature, 64, message, size) != 1)
            fail("signature", "libcrypto does not find it right");
        EVP_MD_CTX_free(context);
    }
    EVP_PKEY_free(key);
    return (double)(bench_processor_ns() - begun) * 1e-9 / CHECKS;
}

/* Measures the decision for one entry: its statement, its signature, the lists of keys. */
static double check_ours(aoticache_cache *cache, const aoticache_trust_claim *claim)
{
    aoticache_trust_verdict verdict;
    aoticache_error error = {.message = ""};
    const uint64_t begun = bench_processor_ns();
    for (int i = 0; i < CHECKS; i++)
        if (aoticache_cache_decide(cache, claim, &verdict, &error) != AOTICACHE_OK ||
            verdict.reason != AOTICACHE_TRUST_SIGNED)
            fail("signature", error.message);
    return (double)(bench_processor_ns() - begun) * 1e-9 / CHECKS;
}

static void compare_signatures(void)
{
    double ours[MOST_ROUNDS], theirs[MOST_ROUNDS];
    aoticache_statement statement = AOTICACHE_STATEMENT_INIT;
    aoticache_trust_claim claim = AOTICACHE_TRUST_CLAIM_INIT;
    aoticache_signature signature;
    char text[AOTICACHE_SIGNATURE_TEXT_BYTES + 1];
    uint8_t *message = NULL;
    size_t size = 0;
    statement.key = kernels[0].key;
    statement.producer = "bench";
    statement.created_ns = 1;
    if (aoticache_statement_sign(&statement, signer, &signature, NULL) != AOTICACHE_OK ||
        aoticache_statement_encode(&statement, &message, &size, NULL) != AOTICACHE_OK)
        fail("signature", "it cannot be made");
    aoticache_signature_format(&signature, text);
    strcat(text, "\n");
    claim.statement = &statement;
    claim.signatures = text;
    aoticache_cache *cache = open_cache("source", "");
    for (size_t i = 0; i < rounds; i++) {
        ours[i] = check_ours(cache, &claim);
        theirs[i] = check_bare(message, size, signature.bytes);
    }
    aoticache_cache_close(cache);
    free(message);
    const double value = median(ours, rounds) * 1e6, peer_value = median(theirs, rounds) * 1e6;
    printf("{\"name\": \"signature check of an entry\", \"value\": %.4g, \"unit\": \"us\", "
           "\"peer\": \"libcrypto alone\", \"peer_value\": %.4g, \"ratio\": %.4f, \"target\": %g, \"met\": %s}\n",
           value, peer_value, value / peer_value, SIGNATURE_LIMIT,
           value <= SIGNATURE_LIMIT * peer_value ? "true" : "false");
    fflush(stdout);
}

int main(void)
{
    const char *parent = getenv("TMPDIR");
    entries = setting("BENCH_REMOTE_ENTRIES", bench_is_quick() ? 64 : entries);
    bytes = setting("BENCH_REMOTE_BYTES", bytes);
    rounds = setting("BENCH_REMOTE_ROUNDS", bench_is_quick() ? 3 : rounds);
    rounds = rounds > MOST_ROUNDS ? MOST_ROUNDS : rounds;
    owner = getpid();
    snprintf(root, sizeof root, "%s/aoticache-bench-XXXXXX", parent != NULL ? parent : "/tmp");
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (mkdtemp(root) == NULL || shared == MAP_FAILED)
        fail("mkdtemp", strerror(errno));
    read_code();
    make_source();
    start_servers();
    write_lists();
    for (size_t i = 0; i < 2; i++) {
        if (servers[i].pid == 0)
            continue;
        in_child(push, &servers[i]);
        fprintf(stderr, "bench_remote: %s has the kernels, at %.0f %% of their size\n", servers[i].name,
                shared->first * 100);
        compare_pulls(&servers[i]);
        compare_gets(&servers[i]);
    }
    compare_signatures();
    if (bench_is_quick())
        bench_left_out("pulls of 256 kernels: 64 are pulled", "QUICK=1");
    stop_servers();
    nftw(root, remove_one, 16, FTW_DEPTH | FTW_PHYS);
    aoticache_secret_key_free(signer);
    return 0;
}
