/*
 * tools/aoticache/why/difference: finds the differences between a request and a stored one, property by property.
 */
#include "base/cleanup.h"
#include "tools/aoticache/arguments/arguments.h"
#include "tools/aoticache/entries/entries.h"
#include "tools/aoticache/why/why_internal.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define NOT_GIVEN "(not given)"
#define NOT_SET "(not set)"
#define VALUE_BYTES 1024

static void add_difference(aoticache_differences *differences, const char *kind, const char *place,
                           const char *property, const char *asked, const char *stored)
{
    differences->items = aoticache_cli_resize(differences->items, differences->count + 1, sizeof *differences->items);
    differences->items[differences->count++] = (aoticache_difference){.kind = kind,
                                                                      .place = aoticache_cli_text("%s", place),
                                                                      .property = aoticache_cli_text("%s", property),
                                                                      .asked = aoticache_cli_text("%s", asked),
                                                                      .stored = aoticache_cli_text("%s", stored)};
}

static void add_argument(aoticache_differences *differences, const char *place, const char *property, const char *asked,
                         const char *stored)
{
    add_difference(differences, "argument", place, property, asked, stored);
}

void aoticache_differences_free(aoticache_differences *differences)
{
    for (size_t i = 0; i < differences->count; i++) {
        free(differences->items[i].place);
        free(differences->items[i].property);
        free(differences->items[i].asked);
        free(differences->items[i].stored);
    }
    free(differences->items);
    *differences = (aoticache_differences){0};
}

/* ---- tensors ---- */

static char *numbers_text(const int64_t *numbers, uint32_t count)
{
    char *text = aoticache_cli_text("[");
    for (uint32_t i = 0; i < count; i++) {
        char *longer = aoticache_cli_text("%s%s%" PRId64, text, i > 0 ? ", " : "", numbers[i]);
        free(text);
        text = longer;
    }
    char *closed = aoticache_cli_text("%s]", text);
    free(text);
    return closed;
}

static bool is_contiguous(const aoticache_tensor_metadata *metadata)
{
    int64_t expected = 1;
    for (uint32_t i = metadata->ndim; i-- > 0;) {
        if (metadata->strides[i] != expected)
            return false;
        expected *= metadata->sizes[i] > 1 ? metadata->sizes[i] : 1;
    }
    return true;
}

static char *strides_text(const aoticache_tensor_metadata *metadata)
{
    cleanup_free char *numbers = numbers_text(metadata->strides, metadata->ndim);
    return aoticache_cli_text("%s%s", numbers, is_contiguous(metadata) ? " (contiguous)" : "");
}

/* Compares sizes and strides. If sizes differ, contiguous strides differ with them: that is not a separate difference. */
static void compare_shapes(const aoticache_tensor_metadata *asked, const aoticache_tensor_metadata *stored,
                           const char *place, aoticache_differences *differences)
{
    size_t bytes = asked->ndim * sizeof(int64_t);
    bool same_sizes = asked->ndim == stored->ndim && (bytes == 0 || memcmp(asked->sizes, stored->sizes, bytes) == 0);
    bool same_strides = same_sizes ? bytes == 0 || memcmp(asked->strides, stored->strides, bytes) == 0
                                   : is_contiguous(asked) && is_contiguous(stored);
    if (!same_sizes) {
        cleanup_free char *left = numbers_text(asked->sizes, asked->ndim);
        cleanup_free char *right = numbers_text(stored->sizes, stored->ndim);
        add_argument(differences, place, "sizes", left, right);
    }
    if (!same_strides) {
        cleanup_free char *left = strides_text(asked);
        cleanup_free char *right = strides_text(stored);
        add_argument(differences, place, "strides", left, right);
    }
}

static const char *or_unknown(const char *name)
{
    return name != NULL ? name : "unknown";
}

static bool same_device(aoticache_device a, aoticache_device b)
{
    return a.type == b.type && a.index == b.index;
}

/* The devices for which both sides were made; tensors on these devices do not differ by device. */
struct comparison {
    aoticache_device asked_device, stored_device;
    bool is_symbolic; /* the stored request has a guard for sizes and strides */
    aoticache_differences *differences;
};

static void compare_devices(const struct comparison *comparison, aoticache_device asked, aoticache_device stored,
                            const char *place)
{
    char left[AOTICACHE_DEVICE_TEXT_BYTES], right[AOTICACHE_DEVICE_TEXT_BYTES];
    if (same_device(asked, stored) ||
        (same_device(asked, comparison->asked_device) && same_device(stored, comparison->stored_device)))
        return;
    aoticache_device_format(asked, left);
    aoticache_device_format(stored, right);
    add_argument(comparison->differences, place, "device", left, right);
}

static void compare_key_sets(const struct comparison *comparison, uint64_t asked, uint64_t stored, const char *place)
{
    cleanup_free char *left = aoticache_cli_text("0x%" PRIx64 "%s", asked, asked == 0 ? " (none: no PyTorch)" : "");
    cleanup_free char *right = aoticache_cli_text("0x%" PRIx64 "%s", stored, stored == 0 ? " (none: no PyTorch)" : "");
    if (asked != stored)
        add_argument(comparison->differences, place, AOTICACHE_WHY_KEY_SETS, left, right);
}

static void compare_data(const struct comparison *comparison, const aoticache_argument *asked,
                         const aoticache_argument *stored, const char *place)
{
    char left[AOTICACHE_DIGEST_HEX_BYTES], right[AOTICACHE_DIGEST_HEX_BYTES];
    if (asked->kind != AOTICACHE_ARGUMENT_CONSTANT || stored->kind != AOTICACHE_ARGUMENT_CONSTANT ||
        aoticache_digest_equal(&asked->value.tensor.data_digest, &stored->value.tensor.data_digest))
        return;
    aoticache_digest_to_hex(&asked->value.tensor.data_digest, left);
    aoticache_digest_to_hex(&stored->value.tensor.data_digest, right);
    left[12] = right[12] = '\0';
    add_argument(comparison->differences, place, "data (SHA-256)", left, right);
}

static void compare_tensors(const struct comparison *comparison, const aoticache_argument *asked,
                            const aoticache_argument *stored, const char *place)
{
    aoticache_differences *differences = comparison->differences;
    const aoticache_tensor_metadata *a = &asked->value.tensor.metadata, *b = &stored->value.tensor.metadata;
    if (asked->kind != stored->kind)
        add_argument(differences, place, "kind",
                     asked->kind == AOTICACHE_ARGUMENT_CONSTANT ? "weight, compiled in" : "tensor",
                     stored->kind == AOTICACHE_ARGUMENT_CONSTANT ? "weight, compiled in" : "tensor");
    if (a->dtype != b->dtype)
        add_argument(differences, place, "dtype", or_unknown(aoticache_dtype_name(a->dtype)),
                     or_unknown(aoticache_dtype_name(b->dtype)));
    if (!comparison->is_symbolic)
        compare_shapes(a, b, place, differences);
    if (a->layout != b->layout)
        add_argument(differences, place, "layout", or_unknown(aoticache_layout_name(a->layout)),
                     or_unknown(aoticache_layout_name(b->layout)));
    compare_devices(comparison, a->device, b->device, place);
    if (a->requires_grad != b->requires_grad)
        add_argument(differences, place, "requires_grad", a->requires_grad ? "true" : "false",
                     b->requires_grad ? "true" : "false");
    compare_key_sets(comparison, a->dispatch_key_set, b->dispatch_key_set, place);
    compare_data(comparison, asked, stored, place);
}

/* ---- arguments ---- */

static bool is_tensor(const aoticache_argument *argument)
{
    return argument->kind == AOTICACHE_ARGUMENT_TENSOR || argument->kind == AOTICACHE_ARGUMENT_CONSTANT;
}

static const char *kind_name(aoticache_argument_kind kind)
{
    switch (kind) {
#define KIND_NAME(upper, lower, number) \
    case AOTICACHE_ARGUMENT_##upper:    \
        return #lower;
        AOTICACHE_ARGUMENT_KIND_LIST(KIND_NAME)
#undef KIND_NAME
    }
    return "unknown";
}

static char *argument_text(const aoticache_argument *argument, bool with_kind)
{
    char value[VALUE_BYTES] = "";
    if (argument == NULL)
        return aoticache_cli_text(NOT_GIVEN);
    aoticache_argument_format(argument, value, sizeof value);
    bool says_kind = !with_kind || argument->kind == AOTICACHE_ARGUMENT_NONE;
    return aoticache_cli_text("%s%s%s", says_kind ? "" : kind_name(argument->kind), says_kind ? "" : " ", value);
}

static void compare_arguments(const struct comparison *comparison, const aoticache_argument *asked,
                              const aoticache_argument *stored, const char *place);

static void compare_lists(const struct comparison *comparison, const aoticache_argument *asked,
                          const aoticache_argument *stored, const char *place)
{
    size_t count = asked->value.list.count, other = stored->value.list.count;
    if (count != other) {
        cleanup_free char *left = aoticache_cli_text("%zu", count);
        cleanup_free char *right = aoticache_cli_text("%zu", other);
        add_argument(comparison->differences, place, "length", left, right);
    }
    for (size_t i = 0; i < count && i < other; i++) {
        cleanup_free char *item = aoticache_cli_text("%s, item %zu", place, i);
        compare_arguments(comparison, &asked->value.list.items[i], &stored->value.list.items[i], item);
    }
}

/* Compares two arguments. Either may be NULL. */
static void compare_arguments(const struct comparison *comparison, const aoticache_argument *asked,
                              const aoticache_argument *stored, const char *place)
{
    if (asked != NULL && stored != NULL && is_tensor(asked) && is_tensor(stored)) {
        compare_tensors(comparison, asked, stored, place);
        return;
    }
    if (asked != NULL && stored != NULL && asked->kind == AOTICACHE_ARGUMENT_LIST && asked->kind == stored->kind) {
        compare_lists(comparison, asked, stored, place);
        return;
    }
    bool same_kind = asked != NULL && stored != NULL && asked->kind == stored->kind;
    cleanup_free char *left = argument_text(asked, !same_kind);
    cleanup_free char *right = argument_text(stored, !same_kind);
    if (!same_kind || strcmp(left, right) != 0)
        add_argument(comparison->differences, place, same_kind ? "value" : "", left, right);
}

static const aoticache_argument *find_keyword(const aoticache_request *request, const char *name)
{
    for (size_t i = 0; i < aoticache_request_argument_count(request); i++)
        if (strcmp(aoticache_request_argument(request, i)->name, name) == 0)
            return aoticache_request_argument(request, i);
    return NULL;
}

/* Returns the other request's argument at the same position, or with the same keyword. */
static const aoticache_argument *find_counterpart(const aoticache_request *other, const aoticache_argument *argument,
                                                  size_t position)
{
    if (argument->name[0] != '\0')
        return find_keyword(other, argument->name);
    const aoticache_argument *found = aoticache_request_argument(other, position);
    return found != NULL && found->name[0] == '\0' ? found : NULL;
}

static void compare_all(const struct comparison *comparison, const aoticache_request *asked,
                        const aoticache_request *stored)
{
    for (int pass = 0; pass < 2; pass++) { /* first all arguments of the request, then the stored one's others */
        const aoticache_request *from = pass == 0 ? asked : stored, *to = pass == 0 ? stored : asked;
        for (size_t i = 0; i < aoticache_request_argument_count(from); i++) {
            const aoticache_argument *argument = aoticache_request_argument(from, i);
            const aoticache_argument *other = find_counterpart(to, argument, i);
            bool is_named = argument->name[0] != '\0';
            cleanup_free char *place =
                is_named ? aoticache_cli_text("argument %s", argument->name) : aoticache_cli_text("argument %zu", i);
            if (pass == 0)
                compare_arguments(comparison, argument, other, place);
            else if (other == NULL)
                compare_arguments(comparison, NULL, argument, place);
        }
    }
}

/* ---- the environment ---- */

static void compare_pair(aoticache_differences *differences, const char *name, const char *asked, const char *stored)
{
    if (asked == NULL || stored == NULL || strcmp(asked, stored) != 0)
        add_difference(differences, AOTICACHE_WHY_ENVIRONMENT, name, "", asked != NULL ? asked : NOT_SET,
                       stored != NULL ? stored : NOT_SET);
}

static void compare_environments(const aoticache_request *asked, const aoticache_request *stored, bool is_symbolic,
                                 aoticache_differences *differences)
{
    const char *name, *value;
    for (size_t i = 0; i < aoticache_request_environment_count(asked); i++) {
        aoticache_request_environment_at(asked, i, &name, &value);
        compare_pair(differences, name, value, aoticache_request_get_environment(stored, name));
    }
    for (size_t i = 0; i < aoticache_request_environment_count(stored); i++) {
        aoticache_request_environment_at(stored, i, &name, &value);
        bool is_of_guards = is_symbolic && strcmp(name, AOTICACHE_SHAPES_NAME) == 0;
        if (!is_of_guards && aoticache_request_get_environment(asked, name) == NULL)
            compare_pair(differences, name, NULL, value);
    }
}

/* ---- guards ---- */

static void append_view(const aoticache_argument *argument, aoticache_tensor_view **views, size_t *count)
{
    if (argument->kind != AOTICACHE_ARGUMENT_TENSOR)
        return;
    const aoticache_tensor_metadata *metadata = &argument->value.tensor.metadata;
    *views = aoticache_cli_resize(*views, *count + 1, sizeof **views);
    (*views)[(*count)++] = (aoticache_tensor_view){.dtype = metadata->dtype,
                                                   .device = metadata->device,
                                                   .ndim = metadata->ndim,
                                                   .sizes = metadata->sizes,
                                                   .strides = metadata->strides,
                                                   .layout = metadata->layout,
                                                   .requires_grad = metadata->requires_grad,
                                                   .dispatch_key_set = metadata->dispatch_key_set};
}

/* Makes the tensors of a call in the form for guards: those in lists one by one. The caller frees them with free(). */
static aoticache_tensor_view *make_views(const aoticache_request *request, size_t *ret_count)
{
    aoticache_tensor_view *views = NULL;
    *ret_count = 0;
    for (size_t i = 0; i < aoticache_request_argument_count(request); i++) {
        const aoticache_argument *argument = aoticache_request_argument(request, i);
        append_view(argument, &views, ret_count);
        for (size_t k = 0; argument->kind == AOTICACHE_ARGUMENT_LIST && k < argument->value.list.count; k++)
            append_view(&argument->value.list.items[k], &views, ret_count);
    }
    return views;
}

static void compare_guard(const aoticache_request *asked, const char *guard, aoticache_differences *differences)
{
    aoticache_check *check = NULL;
    aoticache_error error = {.message = ""};
    size_t count = 0;
    if (aoticache_check_parse(guard, &check, &error) != AOTICACHE_OK) {
        cleanup_free char *why = aoticache_cli_text("cannot compare: the guard cannot be read: %s", error.message);
        add_difference(differences, AOTICACHE_WHY_GUARD, "", "", why, guard);
        return;
    }
    cleanup_free aoticache_tensor_view *views = make_views(asked, &count);
    if (aoticache_check_explain(check, views, count, NULL, &error) != AOTICACHE_OK)
        add_difference(differences, AOTICACHE_WHY_GUARD, "", "", error.message, guard);
    aoticache_check_free(check);
}

/* Returns whether a difference of a tensor was found already, which the guard would report again. */
static bool has_tensor_difference(const aoticache_differences *differences)
{
    for (size_t i = 0; i < differences->count; i++) {
        const char *property = differences->items[i].property;
        if (property[0] != '\0' && strcmp(property, "value") != 0 && strcmp(property, "length") != 0)
            return true;
    }
    return false;
}

/* ---- the whole comparison ---- */

void aoticache_requests_compare(const aoticache_request *asked, const aoticache_request *stored, const char *guard,
                                bool environment, aoticache_differences *ret_differences)
{
    aoticache_differences differences = {0};
    struct comparison comparison = {.asked_device = aoticache_request_device(asked),
                                    .stored_device = aoticache_request_device(stored),
                                    .is_symbolic = guard != NULL && guard[0] != '\0',
                                    .differences = &differences};
    if (!same_device(comparison.asked_device, comparison.stored_device)) {
        char left[AOTICACHE_DEVICE_TEXT_BYTES], right[AOTICACHE_DEVICE_TEXT_BYTES];
        aoticache_device_format(comparison.asked_device, left);
        aoticache_device_format(comparison.stored_device, right);
        add_difference(&differences, "device", "", "", left, right);
    }
    compare_all(&comparison, asked, stored);
    if (comparison.is_symbolic && !has_tensor_difference(&differences))
        compare_guard(asked, guard, &differences);
    if (environment)
        compare_environments(asked, stored, comparison.is_symbolic, &differences);
    *ret_differences = differences;
}

void aoticache_differences_add_requirement(aoticache_differences *differences,
                                           const aoticache_cpu_features *requirements)
{
    aoticache_cpu_features lacking = aoticache_cpu_features_lacking(aoticache_cpu_features_get(), requirements);
    if (aoticache_cpu_features_count(&lacking) == 0)
        return;
    cleanup_free char *names = aoticache_features_list(&lacking);
    cleanup_free char *asked = aoticache_cli_text("this CPU lacks %s", names);
    cleanup_free char *needs = aoticache_features_text(requirements);
    cleanup_free char *stored = aoticache_cli_text("needs %s", needs);
    add_difference(differences, AOTICACHE_WHY_REQUIREMENT, "", "", asked, stored);
}
