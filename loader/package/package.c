/*
 * loader/package/package: turns the entries of an archive into models, their parts and their metadata.
 *
 * Everything is checked when the package is opened: names, kinds of entries, sizes, compression, which library is the
 * model's own. Only entries accepted here are unpacked later.
 */
#include "base/arguments.h"
#include "loader/eager_face.h"
#include "loader/package/package_internal.h"

#include "base/cleanup.h"
#include "base/text/json.h"
#include "base/syscalls.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MAX_ENTRIES 65536
#define MAX_MODEL_FILES 1000 /* an artifact may have some more (docs/formats/store.md) */
/*
 * Deflate compresses by 1032 to 1 at most; a package with machine code stays far below the limit for all entries
 * together.
 */
#define MAX_ENTRY_RATIO 1032
#define MAX_TOTAL_RATIO 100
#define TOTAL_ALLOWANCE (256ull << 20)

/* One file below data/aotinductor/. */
struct file {
    char *model; /* owned */
    char *name;  /* owned */
    uint64_t bytes;
    uint64_t position; /* index in the archive */
};

struct model {
    aoticache_package_model visible; /* first, so that a pointer to it is a pointer to the whole */
    aoticache_package_part *parts;
    uint64_t *positions; /* of the parts, as indices in the archive */
    json_t *metadata;    /* NULL if there is none */
};

struct aoticache_package {
    aoticache_archive *archive;
    struct file *files; /* sorted by model, then by name */
    size_t file_count;
    struct model *models;
    size_t model_count;
    uint64_t metadata_bytes, metadata_values; /* of the models read up to now */
};

/* ---- the entries ---- */

/* Copies a name for a message and replaces control characters, which could manipulate a terminal. */
static const char *printable(const char *name, char ret_text[128])
{
    snprintf(ret_text, 128, "%s", name);
    for (char *at = ret_text; *at != '\0'; at++)
        if ((unsigned char)*at < 0x20 || *at == 0x7f)
            *at = '?';
    return ret_text;
}

static aoticache_status refuse(const aoticache_archive *archive, const char *name, const char *reason,
                               aoticache_error *ret_error)
{
    char text[128];
    return aoticache_error_set(ret_error, AOTICACHE_INVALID, "%s: the entry %s is refused: %s",
                               aoticache_archive_name(archive), printable(name, text), reason);
}

/*
 * Returns whether an entry is an ordinary file or directory. Its mode is 0 if the archive was not made by a Unix
 * program.
 */
static bool is_plain(const aoticache_archive_entry *entry, bool is_directory)
{
    uint32_t type = entry->mode & S_IFMT;
    return type == 0 || type == (is_directory ? S_IFDIR : S_IFREG);
}

static aoticache_status check_sizes(const aoticache_archive *archive, const aoticache_archive_entry *entry,
                                    aoticache_error *ret_error)
{
    char text[128];
    bool is_stored = entry->method == AOTICACHE_ARCHIVE_STORED && !entry->encrypted;
    if (entry->compressed > aoticache_archive_bytes(archive) ||
        (is_stored ? entry->bytes != entry->compressed : entry->bytes / MAX_ENTRY_RATIO > entry->compressed))
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "%s: invalid sizes of the entry %s: %llu bytes packed into %llu of an archive "
                                   "of %llu",
                                   aoticache_archive_name(archive), printable(entry->name, text),
                                   (unsigned long long)entry->bytes, (unsigned long long)entry->compressed,
                                   (unsigned long long)aoticache_archive_bytes(archive));
    return AOTICACHE_OK;
}

static aoticache_status check_entry(const aoticache_archive *archive, const aoticache_archive_entry *entry,
                                    aoticache_error *ret_error)
{
    char reason[AOTICACHE_PACKAGE_REASON_BYTES];
    if (!aoticache_package_name_is_safe(entry->name, reason))
        return refuse(archive, entry->name, reason, ret_error);
    bool is_directory = entry->name[strlen(entry->name) - 1] == '/';
    if (!is_plain(entry, is_directory))
        return refuse(archive, entry->name, "it is a symbolic link or another special file", ret_error);
    if (is_directory && entry->bytes != 0)
        return refuse(archive, entry->name, "it is a directory with contents", ret_error);
    return check_sizes(archive, entry, ret_error);
}

/* Checks how a file of a model is packed. Other files are never unpacked, so they may be packed in any way. */
static aoticache_status check_packing(const aoticache_archive *archive, const aoticache_archive_entry *entry,
                                      aoticache_error *ret_error)
{
    char text[128];
    if (entry->encrypted)
        return aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED, "%s: the entry %s is encrypted",
                                   aoticache_archive_name(archive), printable(entry->name, text));
    if (entry->method != AOTICACHE_ARCHIVE_STORED && entry->method != AOTICACHE_ARCHIVE_DEFLATED)
        return aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED,
                                   "%s: the entry %s uses compression method %u; supported are 0 (stored) and 8 "
                                   "(deflated)",
                                   aoticache_archive_name(archive), printable(entry->name, text),
                                   (unsigned)entry->method);
    return AOTICACHE_OK;
}

static aoticache_status add_file(aoticache_package *package, const aoticache_archive_entry *entry, uint64_t position,
                                 aoticache_error *ret_error)
{
    const char *model, *name;
    size_t model_length;
    if (!aoticache_package_name_split(entry->name, &model, &model_length, &name))
        return AOTICACHE_OK;
    if (model_length >= AOTICACHE_PACKAGE_MODEL_NAME_BYTES)
        return refuse(package->archive, entry->name, "the model's name has more than 255 bytes", ret_error);
    aoticache_status status = check_packing(package->archive, entry, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    struct file file = {.bytes = entry->bytes, .position = position};
    file.model = strndup(model, model_length);
    file.name = strdup(name);
    package->files[package->file_count++] = file;
    return file.model != NULL && file.name != NULL
               ? AOTICACHE_OK
               : aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for a package");
}

static aoticache_status check_totals(const aoticache_archive *archive, uint64_t bytes, uint64_t compressed,
                                     aoticache_error *ret_error)
{
    const uint64_t all = aoticache_archive_bytes(archive);
    if (compressed > all)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "%s: its entries overlap: together they have %llu bytes, but the archive has "
                                   "%llu",
                                   aoticache_archive_name(archive), (unsigned long long)compressed,
                                   (unsigned long long)all);
    if (bytes > TOTAL_ALLOWANCE && (bytes - TOTAL_ALLOWANCE) / MAX_TOTAL_RATIO > all)
        return aoticache_error_set(
            ret_error, AOTICACHE_INVALID, "%s: %llu bytes would unpack to %llu, more than %d times as much",
            aoticache_archive_name(archive), (unsigned long long)all, (unsigned long long)bytes, MAX_TOTAL_RATIO);
    return AOTICACHE_OK;
}

static aoticache_status read_entries(aoticache_package *package, aoticache_error *ret_error)
{
    uint64_t bytes = 0, compressed = 0;
    const uint64_t count = aoticache_archive_entry_count(package->archive);
    if (count > MAX_ENTRIES)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "%s has %llu entries; at most %d are allowed",
                                   aoticache_archive_name(package->archive), (unsigned long long)count, MAX_ENTRIES);
    package->files = calloc(count > 0 ? count : 1, sizeof *package->files);
    if (package->files == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for a package");
    for (uint64_t i = 0; i < count; i++) {
        aoticache_archive_entry entry;
        aoticache_status status = aoticache_archive_read_entry(package->archive, i, &entry, ret_error);
        if (status == AOTICACHE_OK)
            status = check_entry(package->archive, &entry, ret_error);
        if (status == AOTICACHE_OK)
            status = add_file(package, &entry, i, ret_error);
        if (status != AOTICACHE_OK)
            return status;
        if (__builtin_add_overflow(bytes, entry.bytes, &bytes) ||
            __builtin_add_overflow(compressed, entry.compressed, &compressed))
            return refuse(package->archive, entry.name, "the sizes overflow", ret_error);
    }
    return check_totals(package->archive, bytes, compressed, ret_error);
}

static int compare_files(const void *a, const void *b)
{
    const struct file *x = a, *y = b;
    int order = strcmp(x->model, y->model);
    return order != 0 ? order : strcmp(x->name, y->name);
}

static aoticache_status sort_files(aoticache_package *package, aoticache_error *ret_error)
{
    qsort(package->files, package->file_count, sizeof *package->files, compare_files);
    for (size_t i = 1; i < package->file_count; i++)
        if (compare_files(&package->files[i - 1], &package->files[i]) == 0)
            return aoticache_error_set(ret_error, AOTICACHE_INVALID, "%s has the file %s of the model %s twice",
                                       aoticache_archive_name(package->archive), package->files[i].name,
                                       package->files[i].model);
    return AOTICACHE_OK;
}

/* ---- models ---- */

/*
 * Finds the model's own library: the only library, or the only one called NAME.wrapper.so (Triton's CPU backend has a
 * library for each kernel). NULL with a reason if that is not clear.
 */
static const char *find_library(const struct file *files, size_t count, const char **ret_reason)
{
    const char *library = NULL, *wrapper = NULL;
    size_t libraries = 0, wrappers = 0;
    for (size_t i = 0; i < count; i++) {
        if (!aoticache_package_name_ends(files[i].name, ".so"))
            continue;
        library = files[i].name;
        libraries++;
        if (aoticache_package_name_ends(files[i].name, ".wrapper.so")) {
            wrapper = files[i].name;
            wrappers++;
        }
    }
    if (libraries == 1)
        return library;
    if (wrappers == 1)
        return wrapper;
    *ret_reason = libraries == 0 ? "no library (.so); one that has only sources must be compiled with PyTorch first"
                                 : "several libraries (.so), but not exactly one named *.wrapper.so";
    return NULL;
}

static void fill_part(struct model *model, size_t place, const struct file *file, aoticache_part_kind kind)
{
    model->parts[place] = (aoticache_package_part){.name = file->name, .kind = kind, .bytes = file->bytes};
    model->positions[place] = file->position;
}

/* Fills the parts of a model: its library first, the others by name. */
static void fill_parts(struct model *model, const struct file *files, size_t count, const char *library)
{
    size_t place = 1;
    for (size_t i = 0; i < count; i++) {
        aoticache_part_kind kind = aoticache_package_kind_of(files[i].name, library);
        fill_part(model, kind == AOTICACHE_PART_LIBRARY ? 0 : place++, &files[i], kind);
    }
}

/* ---- metadata: the JSON file next to a library, with what it was compiled for and what its author added ---- */

struct text {
    char *bytes;
    size_t size;
};

static aoticache_status append_text(void *user, const void *piece, size_t size, aoticache_error *ret_error)
{
    (void)ret_error;
    struct text *text = user;
    memcpy(text->bytes + text->size, piece, size);
    text->size += size;
    return AOTICACHE_OK;
}

/*
 * Counts the positions at which a value may begin: the start of the text, and after these characters outside of
 * strings.
 */
size_t aoticache_package_metadata_count(const char *text, size_t size)
{
    size_t count = 1;
    bool in_string = false;
    for (size_t i = 0; i < size; i++) {
        if (text[i] == '"')
            in_string = !in_string;
        else if (in_string)
            i += text[i] == '\\';
        else
            count += text[i] == '[' || text[i] == '{' || text[i] == ',';
    }
    return count;
}

/*
 * Parses the JSON object of a library's metadata; the caller releases *ret_metadata with json_decref(). what: for
 * messages.
 */
static aoticache_status parse_metadata(const char *text, size_t size, const char *what, json_t **ret_metadata,
                                       aoticache_error *ret_error)
{
    json_error_t detail;
    json_t *metadata = aoticache_json_parse(text, size, JSON_REJECT_DUPLICATES, &detail);
    if (metadata == NULL && aoticache_json_is_out_of_memory(&detail))
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for the metadata %s", what);
    if (metadata == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "%s is not JSON: line %d: %s", what, detail.line,
                                   detail.text);
    if (!json_is_object(metadata)) {
        json_decref(metadata);
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "%s is JSON, but not an object", what);
    }
    *ret_metadata = metadata;
    return AOTICACHE_OK;
}

/* Returns the text under a name, or `otherwise` if there is none. It is borrowed from the metadata. */
static const char *metadata_text(const json_t *metadata, const char *name, const char *otherwise)
{
    const char *text = json_string_value(json_object_get(metadata, name));
    return text != NULL && text[0] != '\0' ? text : otherwise;
}

/* Lists the metadata. A value that is not a string is passed as JSON text. */
static void list_metadata(json_t *metadata, aoticache_metadata_fn callback, void *user)
{
    const char *name;
    json_t *value;
    json_object_foreach(metadata, name, value)
    {
        cleanup_free char *written =
            json_is_string(value) ? NULL : aoticache_json_write(value, JSON_ENCODE_ANY | JSON_COMPACT);
        const char *text = json_is_string(value) ? json_string_value(value) : written;
        if (!callback(user, name, text != NULL ? text : ""))
            return;
    }
}

/*
 * Checks the size of the metadata of all models read up to now. Parsed JSON takes a hundred times the memory of its
 * text, and each model may have some.
 */
static aoticache_status check_metadata(const aoticache_package *package, const struct model *model, const char *name,
                                       aoticache_error *ret_error)
{
    bool is_large = package->metadata_bytes > AOTICACHE_PACKAGE_METADATA_MAX_BYTES;
    if (!is_large && package->metadata_values <= AOTICACHE_PACKAGE_METADATA_MAX_VALUES)
        return AOTICACHE_OK;
    return aoticache_error_set(
        ret_error, AOTICACHE_INVALID,
        "%s: with %.200s of the model %.100s, the metadata of its models is %llu %s; at most %u are allowed",
        aoticache_archive_name(package->archive), name, model->visible.name,
        (unsigned long long)(is_large ? package->metadata_bytes : package->metadata_values),
        is_large ? "bytes" : "values",
        is_large ? AOTICACHE_PACKAGE_METADATA_MAX_BYTES : AOTICACHE_PACKAGE_METADATA_MAX_VALUES);
}

static aoticache_status read_metadata_part(aoticache_package *package, struct model *model, size_t part,
                                           aoticache_error *ret_error)
{
    const aoticache_package_part *found = &model->parts[part];
    package->metadata_bytes += found->bytes;
    aoticache_status status = check_metadata(package, model, found->name, ret_error);
    if (status != AOTICACHE_OK)
        return status;
    cleanup_free char *bytes = malloc(found->bytes + 1); /* unpack() delivers no more than found->bytes */
    if (bytes == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for %s", found->name);
    struct text text = {.bytes = bytes};
    status =
        aoticache_archive_unpack(package->archive, model->positions[part], found->bytes, append_text, &text, ret_error);
    if (status == AOTICACHE_CORRUPT) { /* opening reports a damaged archive as INVALID */
        status = AOTICACHE_INVALID;
        if (ret_error != NULL)
            ret_error->status = status;
    }
    if (status == AOTICACHE_OK) {
        package->metadata_values += aoticache_package_metadata_count(text.bytes, text.size);
        status = check_metadata(package, model, found->name, ret_error);
    }
    if (status == AOTICACHE_OK)
        status = parse_metadata(text.bytes, text.size, found->name, &model->metadata, ret_error);
    return status;
}

static aoticache_status read_metadata(aoticache_package *package, struct model *model, aoticache_error *ret_error)
{
    aoticache_package_model *visible = &model->visible;
    aoticache_status status = AOTICACHE_OK;
    for (size_t i = 0; status == AOTICACHE_OK && i < visible->part_count; i++)
        if (model->parts[i].kind == AOTICACHE_PART_METADATA)
            status = read_metadata_part(package, model, i, ret_error);
    visible->device = metadata_text(model->metadata, "AOTI_DEVICE_KEY", "cpu");
    visible->machine = metadata_text(model->metadata, "AOTI_MACHINE", "");
    visible->cpu_isa = metadata_text(model->metadata, "AOTI_CPU_ISA", "");
    visible->capability = metadata_text(model->metadata, "AOTI_COMPUTE_CAPABILITY", "");
    return status;
}

static aoticache_status make_model(aoticache_package *package, const struct file *files, size_t count,
                                   aoticache_error *ret_error)
{
    struct model *model = &package->models[package->model_count++];
    const char *reason = NULL;
    const char *library = find_library(files, count, &reason);
    if (library == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "%s: the model %s has %s",
                                   aoticache_archive_name(package->archive), files[0].model, reason);
    if (count > MAX_MODEL_FILES)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "%s: the model %s has %zu files; at most %d are allowed",
                                   aoticache_archive_name(package->archive), files[0].model, count, MAX_MODEL_FILES);
    model->parts = calloc(count, sizeof *model->parts);
    model->positions = calloc(count, sizeof *model->positions);
    if (model->parts == NULL || model->positions == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for a package");
    fill_parts(model, files, count, library);
    model->visible = (aoticache_package_model){.name = files[0].model, .part_count = count, .parts = model->parts};
    return read_metadata(package, model, ret_error);
}

static aoticache_status make_models(aoticache_package *package, aoticache_error *ret_error)
{
    if (package->file_count == 0)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "%s has no model: it has no files in data/aotinductor/MODEL/",
                                   aoticache_archive_name(package->archive));
    package->models = calloc(package->file_count, sizeof *package->models);
    if (package->models == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for a package");
    aoticache_status status = AOTICACHE_OK;
    for (size_t begin = 0, end; status == AOTICACHE_OK && begin < package->file_count; begin = end) {
        for (end = begin + 1; end < package->file_count; end++)
            if (strcmp(package->files[begin].model, package->files[end].model) != 0)
                break;
        status = make_model(package, &package->files[begin], end - begin, ret_error);
    }
    return status;
}

/* ---- the package ---- */

aoticache_status aoticache_package_open_fd(int fd, const char *name, aoticache_package **ret_package,
                                           aoticache_error *ret_error)
{
    if (name == NULL || ret_package == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, name, ret_package);
    if (fd < 0)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "package %.200s: cannot read it: fd is %d", name, fd);
    aoticache_package *package = calloc(1, sizeof *package);
    if (package == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "out of memory for %s", name);
    aoticache_status status = aoticache_archive_open(fd, name, &package->archive, ret_error);
    if (status == AOTICACHE_OK)
        status = read_entries(package, ret_error);
    if (status == AOTICACHE_OK)
        status = sort_files(package, ret_error);
    if (status == AOTICACHE_OK)
        status = make_models(package, ret_error);
    if (status == AOTICACHE_OK)
        *ret_package = package;
    else
        aoticache_package_close(package);
    return status;
}

void aoticache_package_close(aoticache_package *package)
{
    if (package == NULL)
        return;
    int saved = errno;
    for (size_t i = 0; i < package->model_count; i++) {
        free(package->models[i].parts);
        free(package->models[i].positions);
        json_decref(package->models[i].metadata);
    }
    for (size_t i = 0; i < package->file_count; i++) {
        free(package->files[i].model);
        free(package->files[i].name);
    }
    free(package->models);
    free(package->files);
    aoticache_archive_close(package->archive);
    free(package);
    errno = saved;
}

const aoticache_package_model *aoticache_package_model_at(const aoticache_package *package, size_t position)
{
    return position < package->model_count ? &package->models[position].visible : NULL;
}

static aoticache_status fail_not_found(const aoticache_package *package, const char *name, aoticache_error *ret_error)
{
    char known[512] = "";
    size_t length = 0;
    for (size_t i = 0; i < package->model_count && length < sizeof known; i++)
        length += (size_t)snprintf(known + length, sizeof known - length, "%s%s", i > 0 ? ", " : "",
                                   package->models[i].visible.name);
    return aoticache_error_set(
        ret_error, AOTICACHE_NOT_FOUND, "%s has %s%s; it has: %s", aoticache_archive_name(package->archive),
        name != NULL ? "no model " : "several models, but none named ", name != NULL ? name : "model: name one", known);
}

aoticache_status aoticache_package_find_model(const aoticache_package *package, const char *name,
                                              const aoticache_package_model **ret_model, aoticache_error *ret_error)
{
    if (name == NULL && package->model_count == 1) {
        *ret_model = &package->models[0].visible;
        return AOTICACHE_OK;
    }
    for (size_t i = 0; i < package->model_count; i++) {
        if (strcmp(package->models[i].visible.name, name != NULL ? name : "model") == 0) {
            *ret_model = &package->models[i].visible;
            return AOTICACHE_OK;
        }
    }
    return fail_not_found(package, name, ret_error);
}

void aoticache_package_list_metadata(const aoticache_package *package, const aoticache_package_model *model,
                                     aoticache_metadata_fn callback, void *user)
{
    (void)package;
    const struct model *whole = (const struct model *)(const void *)model;
    if (whole->metadata != NULL)
        list_metadata(whole->metadata, callback, user);
}

static aoticache_status write_piece(void *user, const void *piece, size_t size, aoticache_error *ret_error)
{
    if (aoticache_syscall_write(*(const int *)user, piece, size) != 0)
        return aoticache_error_set_errno(ret_error, errno, "cannot write a part of a package");
    return AOTICACHE_OK;
}

aoticache_status aoticache_package_extract_part(aoticache_package *package, const aoticache_package_model *model,
                                                size_t part, int to, aoticache_error *ret_error)
{
    if (package == NULL || model == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, package, model);
    if (part >= model->part_count || to < 0)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID,
                                   "aoticache_package_extract_part: part %zu of %zu, to descriptor %d", part,
                                   model->part_count, to);
    const struct model *whole = (const struct model *)(const void *)model;
    return aoticache_archive_unpack(package->archive, whole->positions[part], model->parts[part].bytes, write_piece,
                                    &to, ret_error);
}
