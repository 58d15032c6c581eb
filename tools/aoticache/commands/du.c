/*
 * aoticache du: disk usage of the cache: by part of the directory, or by operator, device, producer or tag.
 */
#include "base/cleanup.h"
#include "base/files/listing.h"
#include "cache/stats/usage.h"
#include "tools/cli/cli.h"
#include "tools/aoticache/aoticache_internal.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- the parts of a cache directory, and their disk usage ---- */

/* name, description. Names of directories, except the last two: files in the root. */
#define DISK_PART_LIST(X)                                              \
    X(objects, "kernels and manifests")                                \
    X(artifacts, "names of files next to a library")                   \
    X(index, "the index; it is rebuilt if it is lost")                 \
    X(quarantine, "damaged files; nothing needs them")                 \
    X(tmp, "running compiles and copies, and those of dead processes") \
    X(leases, "leases of running compiles")                            \
    X(marks, "pins and tags")                                          \
    X(other, "the format, locks, the reserve")

typedef enum disk_part_id {
#define DISK_PART_ENUM(name, text) DISK_PART_##name,
    DISK_PART_LIST(DISK_PART_ENUM)
#undef DISK_PART_ENUM
        DISK_PART_COUNT
} disk_part_id;

typedef struct disk_part {
    uint64_t files;
    uint64_t bytes;      /* of files */
    uint64_t disk_bytes; /* of files and directories: blocks */
} disk_part;

typedef struct disk_use {
    disk_part parts[DISK_PART_COUNT];
} disk_use;

#define MAX_DEPTH 32
#define BLOCK_BYTES 512 /* the unit of st_blocks, whatever the file system's block size is */

typedef struct met_file {
    dev_t device;
    ino_t inode;
} met_file;

/*
 * A file with several names (hard links in artifacts/ to objects/) counts where it is found first: parts are walked in the
 * order of their list, objects first.
 */
struct walk {
    disk_use *use;
    void *met; /* a tree of met_file: files with more than one name */
};

static const char *part_name(size_t part)
{
    static const char *const names[] = {
#define DISK_PART_NAME(name, text) #name,
        DISK_PART_LIST(DISK_PART_NAME)
#undef DISK_PART_NAME
    };
    return part < DISK_PART_COUNT ? names[part] : NULL;
}

static int compare_files(const void *a, const void *b)
{
    const met_file *x = a, *y = b;
    if (x->device != y->device)
        return x->device < y->device ? -1 : 1;
    return (x->inode > y->inode) - (x->inode < y->inode);
}

/* Returns whether it was found before. */
static bool meet_file(struct walk *walk, const struct stat *found)
{
    met_file *file = aoticache_cli_allocate(1, sizeof *file);
    *file = (met_file){.device = found->st_dev, .inode = found->st_ino};
    met_file *const *node = tsearch(file, &walk->met, compare_files);
    if (node == NULL)
        aoticache_cli_out_of_memory();
    if (*node == file)
        return false;
    free(file);
    return true;
}

static void count_file(struct walk *walk, disk_part *part, const struct stat *found)
{
    if (!S_ISDIR(found->st_mode) && found->st_nlink > 1 && meet_file(walk, found))
        return;
    part->disk_bytes += (uint64_t)found->st_blocks * BLOCK_BYTES;
    if (S_ISDIR(found->st_mode))
        return;
    part->files++;
    part->bytes += (uint64_t)found->st_size;
}

/* Walks a directory. A directory that cannot be opened or is gone by now is skipped: it is counted by its name. */
static void walk_directory(struct walk *walk, disk_part *part, int parent_fd, const char *name, int depth)
{
    const int fd = openat(parent_fd, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    cleanup_dir DIR *listing = aoticache_listing_open(fd);
    for (const char *item; listing != NULL && (item = aoticache_listing_next(listing)) != NULL;) {
        struct stat found;
        if (fstatat(fd, item, &found, AT_SYMLINK_NOFOLLOW) != 0)
            continue;
        count_file(walk, part, &found);
        if (S_ISDIR(found.st_mode) && depth < MAX_DEPTH)
            walk_directory(walk, part, fd, item, depth + 1);
    }
}

static size_t part_of(const char *name)
{
    for (size_t i = 0; i < DISK_PART_COUNT; i++)
        if (i != DISK_PART_index && i != DISK_PART_other && strcmp(name, part_name(i)) == 0)
            return i;
    bool is_index = strncmp(name, "index.sqlite3", strlen("index.sqlite3")) == 0;
    return is_index ? DISK_PART_index : DISK_PART_other;
}

/* Walks the entries of the root that belong to this part. */
static void walk_part(struct walk *walk, DIR *root, size_t part)
{
    rewinddir(root);
    for (struct dirent *item; (item = readdir(root)) != NULL;) {
        struct stat found;
        bool is_parent = strcmp(item->d_name, "..") == 0;
        if (is_parent || part_of(item->d_name) != part ||
            fstatat(dirfd(root), item->d_name, &found, AT_SYMLINK_NOFOLLOW) != 0)
            continue;
        count_file(walk, &walk->use->parts[part], &found);
        if (S_ISDIR(found.st_mode) && strcmp(item->d_name, ".") != 0)
            walk_directory(walk, &walk->use->parts[part], dirfd(root), item->d_name, 1);
    }
}

/* Follows no symbolic link. Files that disappear meanwhile are left out. */
static aoticache_status read_disk_use(const char *directory, disk_use *ret_use, aoticache_error *ret_error)
{
    disk_use use;
    memset(&use, 0, sizeof use);
    struct walk walk = {.use = &use};
    cleanup_dir DIR *root = opendir(directory);
    if (root == NULL)
        return aoticache_error_set_errno(ret_error, errno, "cannot list %s", directory);
    for (size_t part = 0; part < DISK_PART_COUNT; part++)
        walk_part(&walk, root, part);
    tdestroy(walk.met, free);
    *ret_use = use;
    return AOTICACHE_OK;
}

/* ---- the command line ---- */

struct du {
    const aoticache_cli *cli;
    int32_t group; /* an aoticache_usage_group; -1: by part of the directory */
    bool bytes;
    int64_t limit;
    json_t *array; /* with --json */
    aoticache_cli_table *table;
    uint64_t shown;
};

static const char *const group_words[] = {[AOTICACHE_USAGE_BY_OP] = "operator",
                                          [AOTICACHE_USAGE_BY_DEVICE] = "device",
                                          [AOTICACHE_USAGE_BY_PRODUCER] = "producer",
                                          [AOTICACHE_USAGE_BY_TAG] = "tag",
                                          NULL};

static const aoticache_cli_option du_options[] = {
    {"by", 0, "operator|device|producer|tag",
     "one row for each of these, the largest first; default:\none row for each part of the directory",
     AOTICACHE_CLI_WORD(struct du, group, group_words)},
    {"bytes", 'b', NULL, "print sizes in bytes, not in KiB, MiB, ...", AOTICACHE_CLI_SET(struct du, bytes)},
    {"limit", 'n', "N", "with --by: print only the first N groups",
     AOTICACHE_CLI_INTEGER(struct du, limit, 1, INT64_MAX, "a number from 1 on")},
    {0},
};

/* Returns the name of a group in JSON. */
static const char *json_name_of_group(const struct du *du)
{
    return du->group == AOTICACHE_USAGE_BY_OP ? "op" : group_words[du->group];
}

static const char *format_bytes(const struct du *du, uint64_t bytes, char text[AOTICACHE_CLI_UNIT_BYTES])
{
    if (!du->bytes)
        return aoticache_cli_format_bytes(bytes, text);
    snprintf(text, AOTICACHE_CLI_UNIT_BYTES, "%" PRIu64, bytes);
    return text;
}

/* ---- parts ---- */

static json_t *part_to_json(const char *name, const disk_part *part)
{
    json_t *object = aoticache_cli_json_object();
    if (name != NULL)
        aoticache_cli_json_set(object, "part", aoticache_cli_json_text(name));
    aoticache_cli_json_set(object, "files", aoticache_cli_json_count(part->files));
    aoticache_cli_json_set(object, "bytes", aoticache_cli_json_count(part->bytes));
    aoticache_cli_json_set(object, "disk_bytes", aoticache_cli_json_count(part->disk_bytes));
    return object;
}

static void add_part_row(const struct du *du, aoticache_cli_style style, const char *name, const disk_part *part,
                         const char *what)
{
    char bytes[AOTICACHE_CLI_UNIT_BYTES], disk[AOTICACHE_CLI_UNIT_BYTES];
    cleanup_free char *files = aoticache_cli_text("%" PRIu64, part->files);
    const char *cells[] = {name, files, format_bytes(du, part->bytes, bytes), format_bytes(du, part->disk_bytes, disk),
                           what};
    aoticache_cli_table_add(du->table, style, cells);
}

static void show_parts(struct du *du, const disk_use *use, const char *directory)
{
    static const char *const what[] = {
#define DISK_PART_TEXT(name, text) text,
        DISK_PART_LIST(DISK_PART_TEXT)
#undef DISK_PART_TEXT
    };
    static const aoticache_cli_column columns[] = {
        {"PART", false, false},   {"FILES", true, false}, {"SIZE", true, false},
        {"ON DISK", true, false}, {"WHAT", false, true},
    };
    disk_part total = {0};
    json_t *parts = du->cli->json ? aoticache_cli_json_array() : NULL;
    du->table = aoticache_cli_table_create(columns, sizeof columns / sizeof columns[0]);
    for (size_t i = 0; i < DISK_PART_COUNT; i++) {
        const disk_part *part = &use->parts[i];
        total.files += part->files;
        total.bytes += part->bytes;
        total.disk_bytes += part->disk_bytes;
        if (parts != NULL)
            aoticache_cli_json_append(parts, part_to_json(part_name(i), part));
        else if (part->files > 0 || part->disk_bytes > 0)
            add_part_row(du, AOTICACHE_CLI_PLAIN, part_name(i), part, what[i]);
    }
    if (parts != NULL) {
        json_t *object = aoticache_cli_json_object();
        aoticache_cli_json_set(object, "directory", aoticache_cli_json_text(directory));
        aoticache_cli_json_set(object, "total", part_to_json(NULL, &total));
        aoticache_cli_json_set(object, "parts", parts);
        aoticache_cli_json_print(object);
    } else {
        add_part_row(du, AOTICACHE_CLI_BOLD, "total", &total, directory);
        aoticache_cli_table_print(du->table, du->cli);
    }
    aoticache_cli_table_free(du->table);
}

/* ---- groups ---- */

static json_t *group_to_json(const char *by, const aoticache_usage *usage)
{
    json_t *object = aoticache_cli_json_object();
    bool is_untagged = strcmp(by, "tag") == 0 && usage->name[0] == '\0';
    aoticache_cli_json_set(object, by, is_untagged ? json_null() : aoticache_cli_json_text(usage->name));
    aoticache_cli_json_set(object, "entries", aoticache_cli_json_count(usage->entries));
    aoticache_cli_json_set(object, "bytes", aoticache_cli_json_count(usage->bytes));
    aoticache_cli_json_set(object, "last_used_ns", json_integer(usage->last_used_ns));
    return object;
}

static bool show_group(void *user, const aoticache_usage *usage)
{
    struct du *du = user;
    if (du->array != NULL) {
        aoticache_cli_json_append(du->array, group_to_json(json_name_of_group(du), usage));
    } else {
        char bytes[AOTICACHE_CLI_UNIT_BYTES], used[AOTICACHE_CLI_UNIT_BYTES];
        cleanup_free char *entries = aoticache_cli_text("%" PRIu64, usage->entries);
        const char *cells[] = {usage->name[0] != '\0' ? usage->name : "(none)", entries,
                               format_bytes(du, usage->bytes, bytes),
                               aoticache_cli_format_age(usage->last_used_ns, used)};
        aoticache_cli_table_add(du->table, AOTICACHE_CLI_PLAIN, cells);
    }
    du->shown++;
    return du->limit == 0 || du->shown < (uint64_t)du->limit;
}

/* Prints groups. cache NULL: there is no cache, and therefore no group. */
static int show_groups(struct du *du, aoticache_cache *cache, const char *directory)
{
    static const char *const titles[] = {"OPERATOR", "DEVICE", "PRODUCER", "TAG"};
    const aoticache_cli_column columns[] = {
        {titles[du->group], false, true}, {"KERNELS", true, false}, {"SIZE", true, false}, {"USED", true, false}};
    aoticache_error error = {.message = ""};
    du->array = du->cli->json ? aoticache_cli_json_array() : NULL;
    du->table = aoticache_cli_table_create(columns, sizeof columns / sizeof columns[0]);
    aoticache_status status =
        cache != NULL ? aoticache_cache_list_usage(cache, (aoticache_usage_group)du->group, show_group, du, &error)
                      : AOTICACHE_OK;
    if (status == AOTICACHE_OK && du->array != NULL) {
        json_t *object = aoticache_cli_json_object();
        aoticache_cli_json_set(object, "directory", aoticache_cli_json_text(directory));
        aoticache_cli_json_set(object, "by", aoticache_cli_json_text(json_name_of_group(du)));
        aoticache_cli_json_set(object, "groups", du->array);
        aoticache_cli_json_print(object);
    } else if (status == AOTICACHE_OK && du->shown > 0) {
        aoticache_cli_table_print(du->table, du->cli);
    } else if (status == AOTICACHE_OK && cache != NULL) {
        aoticache_cli_note(du->cli, "the cache at %s is empty", directory);
    }
    aoticache_cli_table_free(du->table);
    return status == AOTICACHE_OK ? AOTICACHE_CLI_EXIT_OK : aoticache_cli_fail(du->cli, status, &error);
}

static int du_command(aoticache_cli *cli)
{
    struct du du = {.cli = cli, .group = -1};
    aoticache_cache *cache = NULL;
    disk_use use = {0};
    char directory[PATH_MAX];
    aoticache_error error = {.message = ""};
    if (!aoticache_cli_parse(cli, &du))
        return cli->exit_code;
    if (du.limit > 0 && du.group < 0)
        return aoticache_cli_usage_error(cli, "option --limit needs --by");
    int result = aoticache_cli_open_if_there(cli, &cache);
    if (result != AOTICACHE_CLI_EXIT_OK)
        return result;
    aoticache_cli_directory(cli, directory);
    if (cache != NULL)
        snprintf(directory, sizeof directory, "%s", aoticache_cache_directory(cache));
    if (du.group >= 0) {
        result = show_groups(&du, cache, directory);
        aoticache_cache_close(cache);
        return result;
    }
    /* Closed before it is measured: an open index has further files next to it. */
    const bool is_there = cache != NULL;
    aoticache_cache_close(cache);
    aoticache_status status = is_there ? read_disk_use(directory, &use, &error) : AOTICACHE_OK;
    if (status != AOTICACHE_OK)
        return aoticache_cli_fail(cli, status, &error);
    show_parts(&du, &use, directory);
    return AOTICACHE_CLI_EXIT_OK;
}

const aoticache_command aoticache_command_du = {
    .word = "du",
    .program =
        {
            .name = "aoticache du",
            .help_hint = "aoticache help du",
            .usage = "[--by GROUP] [OPTION]...",
            .summary = "Shows how much disk space the cache takes.",
            .details =
                "A file with several names counts once. SIZE is the sum of the files' sizes. ON DISK is the space\n"
                "that the file system allocates for files and directories. With --by, SIZE comes from the index: it\n"
                "is the size of the files that the kernels of a group need. A file that several groups need\n"
                "counts in each of them, and a kernel counts under each of its tags.",
            .options = du_options,
        },
    .run = du_command,
};
