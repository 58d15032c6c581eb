/*
 * tools/aoticache/inspect/package: the report on a .pt2 package: its models, their parts and metadata, and the report on
 * each model's library, which is unpacked into memory: nothing is left on disk.
 */
#include "base/cleanup.h"
#include "tools/aoticache/inspect/inspect_internal.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

static const char *kind_word(aoticache_part_kind kind)
{
    static const char *const words[] = {"library", "metadata", "weights", "side file", "source"};
    return (size_t)kind < sizeof words / sizeof words[0] ? words[kind] : "unknown";
}

static json_t *parts_to_json(const aoticache_package_model *model)
{
    json_t *array = aoticache_cli_json_array();
    for (size_t i = 0; i < model->part_count; i++) {
        json_t *object = aoticache_cli_json_object();
        aoticache_cli_json_set(object, "name", aoticache_cli_json_text(model->parts[i].name));
        aoticache_cli_json_set(object, "kind", aoticache_cli_json_text(kind_word(model->parts[i].kind)));
        aoticache_cli_json_set(object, "bytes", aoticache_cli_json_count(model->parts[i].bytes));
        aoticache_cli_json_append(array, object);
    }
    return array;
}

/* Names are from the file: text that is not UTF-8 cannot be a member of an object unchanged. */
static bool add_metadata(void *user, const char *name, const char *value)
{
    json_t *text = aoticache_cli_json_text(name);
    aoticache_cli_json_set(user, json_string_value(text), aoticache_cli_json_text(value));
    json_decref(text);
    return true;
}

/* ---- the library of a model ---- */

static aoticache_status unpack(aoticache_package *package, const aoticache_package_model *model, size_t part,
                               int *ret_fd, aoticache_error *ret_error)
{
    cleanup_fd int fd = memfd_create("aoticache-inspect", MFD_CLOEXEC);
    if (fd < 0)
        return aoticache_error_set_errno(ret_error, errno, "making a file in memory");
    aoticache_status status = aoticache_package_extract_part(package, model, part, fd, ret_error);
    if (status == AOTICACHE_OK)
        *ret_fd = steal_fd(&fd);
    return status;
}

static json_t *problem_to_json(const char *name, const char *message)
{
    json_t *report = aoticache_cli_json_object();
    aoticache_cli_json_set(report, "name", aoticache_cli_json_text(name));
    aoticache_cli_json_set(report, "problem", aoticache_cli_json_text(message));
    return report;
}

static json_t *library_to_json(const aoticache_inspection *inspection, aoticache_package *package,
                               const aoticache_package_model *model, const char *package_name, bool *ret_ok)
{
    size_t part = 0;
    while (part < model->part_count && model->parts[part].kind != AOTICACHE_PART_LIBRARY)
        part++;
    cleanup_free char *name = aoticache_cli_text("%s:%s/%s", package_name, model->name,
                                                 part < model->part_count ? model->parts[part].name : "");
    aoticache_error error = {.message = ""};
    cleanup_fd int fd = -1;
    *ret_ok = false;
    if (part == model->part_count)
        return problem_to_json(name, "the model has no library");
    if (unpack(package, model, part, &fd, &error) != AOTICACHE_OK)
        return problem_to_json(name, error.message);
    aoticache_inspected library = {.fd = fd, .name = name, .device = model->device};
    return aoticache_inspect_library(inspection, &library, ret_ok);
}

/* ---- the report ---- */

static json_t *model_to_json(const aoticache_inspection *inspection, aoticache_package *package,
                             const aoticache_package_model *model, const char *package_name, bool *ret_ok)
{
    json_t *object = aoticache_cli_json_object(), *metadata = aoticache_cli_json_object();
    aoticache_package_list_metadata(package, model, add_metadata, metadata);
    aoticache_cli_json_set(object, "name", aoticache_cli_json_text(model->name));
    aoticache_cli_json_set(object, "device", aoticache_cli_json_text(model->device));
    aoticache_cli_json_set(object, "machine", aoticache_cli_json_text(model->machine));
    aoticache_cli_json_set(object, "cpu_isa", aoticache_cli_json_text(model->cpu_isa));
    aoticache_cli_json_set(object, "capability", aoticache_cli_json_text(model->capability));
    aoticache_cli_json_set(object, "parts", parts_to_json(model));
    aoticache_cli_json_set(object, "metadata", metadata);
    aoticache_cli_json_set(object, "library", library_to_json(inspection, package, model, package_name, ret_ok));
    return object;
}

int aoticache_inspect_package(const aoticache_inspection *inspection, int fd, const char *name, json_t **ret_report,
                              bool *ret_ok)
{
    aoticache_package *package = NULL;
    aoticache_error error = {.message = ""};
    aoticache_status status = aoticache_package_open_fd(fd, name, &package, &error);
    if (status != AOTICACHE_OK)
        return aoticache_cli_fail(inspection->cli, status, &error);
    json_t *report = aoticache_cli_json_object(), *models = aoticache_cli_json_array();
    bool all_ok = true;
    aoticache_cli_json_set(report, "name", aoticache_cli_json_text(name));
    const aoticache_package_model *model;
    for (size_t i = 0; (model = aoticache_package_model_at(package, i)) != NULL; i++) {
        bool ok = false;
        aoticache_cli_json_append(models, model_to_json(inspection, package, model, name, &ok));
        all_ok &= ok;
    }
    aoticache_cli_json_set(report, "models", models);
    aoticache_package_close(package);
    *ret_report = report;
    *ret_ok = all_ok;
    return AOTICACHE_CLI_EXIT_OK;
}
