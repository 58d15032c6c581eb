/*
 * tools/aoticache/inspect/library: the report on one library from its file: interface, requirements, the libraries that have
 * its imported functions, device code, remarks. loaded.c adds what only loading it shows.
 */
#include "base/cleanup.h"
#include "loader/cuda/images.h"
#include "loader/elf/traits.h"
#include "tools/aoticache/inspect/inspect_internal.h"

#include <stdlib.h>
#include <string.h>

static json_t *names_to_json(const char *const *names, size_t count)
{
    json_t *array = aoticache_cli_json_array();
    for (size_t i = 0; i < count; i++)
        aoticache_cli_json_append(array, aoticache_cli_json_text(names[i]));
    return array;
}

static bool is_among(const char *name, const char *const *names, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (strcmp(names[i], name) == 0)
            return true;
    return false;
}

/* ---- the interface ---- */

#define NAME_OF(name, parameters) #name,
static const char *const base_functions[] = {AOTICACHE_ABI_BASE_LIST(NAME_OF)};
static const char *const newer_functions[] = {AOTICACHE_ABI_NEWER_LIST(NAME_OF)};
#undef NAME_OF

enum {
    BASE_COUNT = sizeof base_functions / sizeof base_functions[0],
    NEWER_COUNT = sizeof newer_functions / sizeof newer_functions[0],
};

/* Returns how many of the list it exports; the names are added to `present` or `missing`. */
static size_t sort_functions(const aoticache_library_description *library, const char *const *list, size_t count,
                             json_t *present, json_t *missing)
{
    size_t found = 0;
    for (size_t i = 0; i < count; i++) {
        bool exported = is_among(list[i], library->exports, library->export_count);
        found += exported;
        aoticache_cli_json_append(exported ? present : missing, aoticache_cli_json_text(list[i]));
    }
    return found;
}

/* Returns whether the library was not parsed because it is for another class or byte order; the machine's name says so after
 * a comma. */
static bool is_unread(const aoticache_library_description *library)
{
    return strchr(library->machine, ',') != NULL;
}

static const char *generation_of(const aoticache_library_description *library, size_t base, size_t newer)
{
    if (is_unread(library))
        return "unknown";
    if (base == BASE_COUNT)
        return newer == NEWER_COUNT ? "2.13" : newer == 0 ? "2.6" : "2.6 to 2.13";
    return base + newer > 0 ? "incomplete" : "none";
}

static json_t *interface_to_json(const aoticache_library_description *library)
{
    json_t *object = aoticache_cli_json_object(), *present = aoticache_cli_json_array();
    json_t *missing = aoticache_cli_json_array(), *other = aoticache_cli_json_array();
    size_t base = sort_functions(library, base_functions, BASE_COUNT, present, missing);
    size_t newer = sort_functions(library, newer_functions, NEWER_COUNT, present, missing);
    for (size_t i = 0; i < library->export_count; i++)
        if (!is_among(library->exports[i], base_functions, BASE_COUNT) &&
            !is_among(library->exports[i], newer_functions, NEWER_COUNT))
            aoticache_cli_json_append(other, aoticache_cli_json_text(library->exports[i]));
    aoticache_cli_json_set(object, "generation", aoticache_cli_json_text(generation_of(library, base, newer)));
    aoticache_cli_json_set(object, "present", present);
    aoticache_cli_json_set(object, "missing", missing);
    aoticache_cli_json_set(object, "other", other);
    return object;
}

/* ---- imported functions ---- */

/* Finds which functions are in the libraries of --torch; NULL if none was named. *ret_problem: the first library that cannot
 * be read. */
static bool *find_in_torch(const aoticache_inspection *inspection, const aoticache_library_description *library,
                           json_t **ret_problem)
{
    if (inspection->torch_count == 0)
        return NULL;
    bool *found = aoticache_cli_allocate(library->symbol_count + 1, sizeof *found);
    for (size_t i = 0; i < inspection->torch_count; i++) {
        aoticache_error error = {.message = ""};
        if (aoticache_library_find_symbols(inspection->torch_fds[i], library->symbols, library->symbol_count, found,
                                           &error) == AOTICACHE_OK)
            continue;
        cleanup_free char *text = aoticache_cli_text("%s: %s", inspection->torch_paths[i], error.message);
        if (*ret_problem == NULL)
            *ret_problem = aoticache_cli_json_text(text);
    }
    return found;
}

static json_t *symbols_to_json(const aoticache_library_description *library, const bool *in_torch)
{
    json_t *array = aoticache_cli_json_array();
    for (size_t i = 0; i < library->symbol_count; i++) {
        json_t *object = aoticache_cli_json_object();
        bool in_shim = !is_among(library->symbols[i], library->missing, library->missing_count);
        aoticache_cli_json_set(object, "name", aoticache_cli_json_text(library->symbols[i]));
        aoticache_cli_json_set(object, "shim", json_boolean(in_shim));
        aoticache_cli_json_set(object, "torch", in_torch != NULL ? json_boolean(in_torch[i]) : json_null());
        aoticache_cli_json_append(array, object);
    }
    return array;
}

/* Returns null without --torch. */
static json_t *torch_to_json(const aoticache_inspection *inspection, const aoticache_library_description *library,
                             const bool *in_torch, json_t *problem)
{
    if (in_torch == NULL)
        return json_null();
    json_t *object = aoticache_cli_json_object(), *lacks = aoticache_cli_json_array();
    for (size_t i = 0; i < library->symbol_count; i++)
        if (!in_torch[i])
            aoticache_cli_json_append(lacks, aoticache_cli_json_text(library->symbols[i]));
    aoticache_cli_json_set(object, "files", names_to_json(inspection->torch_paths, inspection->torch_count));
    aoticache_cli_json_set(object, "lacks", lacks);
    aoticache_cli_json_set(object, "problem", problem != NULL ? problem : json_null());
    return object;
}

/* ---- device code ---- */

static json_t *cuda_to_json(int fd, const aoticache_library_description *library, bool *ret_ok)
{
    aoticache_cuda_image images[AOTICACHE_CUDA_IMAGE_MAX];
    aoticache_error error = {.message = ""};
    size_t count = 0;
    json_t *object = aoticache_cli_json_object(), *names = aoticache_cli_json_array();
    aoticache_status status = AOTICACHE_OK;
    if (!is_unread(library))
        status = aoticache_cuda_images_read(fd, images, AOTICACHE_CUDA_IMAGE_MAX, &count, &error);
    for (size_t i = 0; status == AOTICACHE_OK && i < count && i < AOTICACHE_CUDA_IMAGE_MAX; i++) {
        char text[16];
        aoticache_cuda_image_format(&images[i], text);
        aoticache_cli_json_append(names, aoticache_cli_json_text(text));
    }
    aoticache_cli_json_set(object, "used", json_boolean(library->cuda));
    aoticache_cli_json_set(object, "images", names);
    aoticache_cli_json_set(object, "problem",
                           status != AOTICACHE_OK ? aoticache_cli_json_text(error.message) : json_null());
    *ret_ok &= status == AOTICACHE_OK;
    return object;
}

/* ---- the report ---- */

static json_t *made_by_to_json(const aoticache_library_traits *traits)
{
    static const char *const makers[] = {"unknown", "pytorch", "aoticache-runtime", "aoticache-inductor"};
    json_t *object = aoticache_cli_json_object();
    aoticache_cli_json_set(object, "producer", aoticache_cli_json_text(makers[traits->maker]));
    aoticache_cli_json_set(object, "compiler",
                           traits->compiler[0] != '\0' ? aoticache_cli_json_text(traits->compiler) : json_null());
    return object;
}

static json_t *proxy_to_json(const aoticache_library_description *library, const aoticache_library_traits *traits)
{
    json_t *object = aoticache_cli_json_object(), *operators = aoticache_cli_json_array();
    cleanup_free char *text = aoticache_cli_text("%s", traits->proxy_operators);
    char *rest = NULL;
    for (char *name = strtok_r(text, ", ", &rest); name != NULL; name = strtok_r(NULL, ", ", &rest))
        aoticache_cli_json_append(operators, aoticache_cli_json_text(name));
    aoticache_cli_json_set(object, "used", json_boolean(library->proxy_executor));
    aoticache_cli_json_set(object, "operators", operators);
    return object;
}

static void add_description(json_t *report, const aoticache_inspection *inspection, int fd,
                            const aoticache_library_description *library, const aoticache_library_traits *traits,
                            bool *ret_ok)
{
    json_t *problem = NULL;
    cleanup_free bool *in_torch = find_in_torch(inspection, library, &problem);
    *ret_ok &= problem == NULL;
    aoticache_cli_json_set(report, "machine", aoticache_cli_json_text(library->machine));
    aoticache_cli_json_set(report, "made_by", made_by_to_json(traits));
    aoticache_cli_json_set(report, "soname",
                           traits->soname[0] != '\0' ? aoticache_cli_json_text(traits->soname) : json_null());
    aoticache_cli_json_set(report, "interface", interface_to_json(library));
    aoticache_cli_json_set(report, "needed", names_to_json(library->needed, library->needed_count));
    aoticache_cli_json_set(report, "symbols", symbols_to_json(library, in_torch));
    aoticache_cli_json_set(report, "shim_lacks", names_to_json(library->missing, library->missing_count));
    aoticache_cli_json_set(report, "torch", torch_to_json(inspection, library, in_torch, problem));
    aoticache_cli_json_set(report, "proxy_executor", proxy_to_json(library, traits));
    aoticache_cli_json_set(report, "cuda", cuda_to_json(fd, library, ret_ok));
    aoticache_cli_json_set(report, "unique_symbols", aoticache_cli_json_count(traits->unique_symbol_count));
    aoticache_cli_json_set(report, "executable_stack", json_boolean(traits->executable_stack));
    aoticache_cli_json_set(report, "finds_itself", json_boolean(traits->finds_itself));
    aoticache_cli_json_set(report, "mapped_bytes", aoticache_cli_json_count(traits->mapped_bytes));
    aoticache_cli_json_set(report, "appended_bytes", aoticache_cli_json_count(traits->appended_bytes));
}

/* Adds name, size and digest, which are known of any readable file. */
static aoticache_status add_file(json_t *report, const aoticache_inspected *library, aoticache_error *error)
{
    aoticache_digest digest;
    uint64_t bytes = 0;
    aoticache_cli_json_set(report, "name", aoticache_cli_json_text(library->name));
    aoticache_status status = aoticache_digest_of_fd(library->fd, &digest, &bytes, error);
    if (status != AOTICACHE_OK)
        return status;
    aoticache_cli_json_set(report, "bytes", aoticache_cli_json_count(bytes));
    aoticache_cli_json_set(report, "sha256", aoticache_cli_json_digest(&digest));
    return AOTICACHE_OK;
}

static json_t *load_and_report(const aoticache_inspection *inspection, const aoticache_inspected *library,
                               const aoticache_library_description *description, bool *ret_ok)
{
    if (!inspection->load)
        return json_null();
    aoticache_inspected chosen = *library;
    if (chosen.device == NULL || chosen.device[0] == '\0')
        chosen.device = description->cuda ? "cuda" : "cpu";
    json_t *loaded = aoticache_inspect_loaded(inspection, &chosen);
    *ret_ok &= json_is_true(json_object_get(loaded, "ok"));
    return loaded;
}

json_t *aoticache_inspect_library(const aoticache_inspection *inspection, const aoticache_inspected *library,
                                  bool *ret_ok)
{
    json_t *report = aoticache_cli_json_object();
    aoticache_library_description *description = NULL;
    aoticache_library_traits *traits = NULL;
    aoticache_error error = {.message = ""};
    bool ok = true;
    aoticache_status status = add_file(report, library, &error);
    if (status == AOTICACHE_OK)
        status = aoticache_library_describe(library->fd, &description, &error);
    if (status == AOTICACHE_OK)
        status = aoticache_library_traits_read(library->fd, &traits, &error);
    aoticache_cli_json_set(report, "problem",
                           status != AOTICACHE_OK ? aoticache_cli_json_text(error.message) : json_null());
    if (status == AOTICACHE_OK) {
        add_description(report, inspection, library->fd, description, traits, &ok);
        aoticache_cli_json_set(report, "loaded", load_and_report(inspection, library, description, &ok));
    }
    aoticache_library_traits_free(traits);
    aoticache_library_description_free(description);
    *ret_ok = ok && status == AOTICACHE_OK;
    return report;
}
