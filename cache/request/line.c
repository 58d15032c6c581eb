/*
 * cache/request/line: writes the line from which text.c reads the same request: the text of format.c, followed by the
 * dispatch key sets. Also chooses between the forms of a line.
 */
#include "base/arguments.h"
#include "base/cleanup.h"
#include "base/text/stream.h"
#include "cache/request/request_internal.h"
#include "cache/request/text.h"

#include <inttypes.h>
#include <string.h>

/* What the dispatch key sets of a request's tensors have in common. */
struct key_sets {
    size_t count; /* number of tensors */
    uint64_t first;
    bool differ;
    FILE *out; /* output; NULL: they are only examined */
};

static void count_key_set(struct key_sets *sets, const aoticache_argument *item)
{
    if (item->kind != AOTICACHE_ARGUMENT_TENSOR)
        return;
    uint64_t key_set = item->value.tensor.metadata.dispatch_key_set;
    if (sets->out != NULL)
        fprintf(sets->out, "%s 0x%" PRIx64, sets->count > 0 ? "," : "", key_set);
    if (sets->count == 0)
        sets->first = key_set;
    sets->differ |= key_set != sets->first;
    sets->count++;
}

static void count_key_sets(struct key_sets *sets, const aoticache_request *request)
{
    for (size_t i = 0; i < request->arguments.count; i++) {
        const aoticache_argument *argument = request->arguments.views + i;
        count_key_set(sets, argument);
        for (size_t item = 0; argument->kind == AOTICACHE_ARGUMENT_LIST && item < argument->value.list.count; item++)
            count_key_set(sets, argument->value.list.items + item);
    }
}

/* Returns the position of the first argument that is or contains a constant; the number of arguments if there is none. */
static size_t find_constant(const aoticache_request *request)
{
    size_t i = 0;
    for (; i < request->arguments.count; i++) {
        const aoticache_argument *argument = request->arguments.views + i;
        if (argument->kind == AOTICACHE_ARGUMENT_CONSTANT)
            break;
        for (size_t item = 0; argument->kind == AOTICACHE_ARGUMENT_LIST && item < argument->value.list.count; item++)
            if (argument->value.list.items[item].kind == AOTICACHE_ARGUMENT_CONSTANT)
                return i;
    }
    return i;
}

/* Writes " key_sets 0x10001", only one if all are equal, nothing if all are 0. */
static void write_key_sets(FILE *out, const aoticache_request *request)
{
    struct key_sets sets = {0};
    count_key_sets(&sets, request);
    if (sets.first == 0 && !sets.differ)
        return;
    fputs(" key_sets", out);
    if (!sets.differ) {
        fprintf(out, " 0x%" PRIx64, sets.first);
        return;
    }
    count_key_sets(&(struct key_sets){.out = out}, request);
}

static aoticache_status write_text(const aoticache_request *request, char **ret_line, aoticache_error *ret_error)
{
    size_t constant = find_constant(request);
    if (constant < request->arguments.count)
        return aoticache_error_set(ret_error, AOTICACHE_UNSUPPORTED,
                                   "%s: argument %zu is a constant, and a line of text cannot contain its data",
                                   request->info.op, constant);
    char *text = NULL;
    size_t size = 0, length = aoticache_request_format(request, NULL, 0);
    cleanup_free char *line = malloc(length + 1);
    cleanup_file FILE *out = line != NULL ? aoticache_text_stream_open(&text, &size) : NULL;
    if (out == NULL)
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "request text: out of memory");
    aoticache_request_format(request, line, length + 1);
    fputs(line, out);
    write_key_sets(out, request);
    int failed = fclose(steal_ptr(&out));
    if (failed != 0) {
        free(text);
        return aoticache_error_set(ret_error, AOTICACHE_NO_MEMORY, "request text: out of memory");
    }
    *ret_line = text;
    return AOTICACHE_OK;
}

/* ---- both forms ---- */

static aoticache_status refuse_form(aoticache_request_form form, aoticache_error *ret_error)
{
    return aoticache_error_set(ret_error, AOTICACHE_INVALID, "request: unknown form %d", (int)form);
}

aoticache_status aoticache_request_write(const aoticache_request *request, aoticache_request_form form, char **ret_line,
                                         aoticache_error *ret_error)
{
    if (request == NULL || ret_line == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, request, ret_line);
    if (request->list_open)
        return aoticache_error_set(ret_error, AOTICACHE_INVALID, "%s: a list is still open", request->info.op);
    switch (form) {
    case AOTICACHE_REQUEST_TEXT:
        return write_text(request, ret_line, ret_error);
    case AOTICACHE_REQUEST_JSON:
        return aoticache_request_write_json(request, ret_line, ret_error);
    }
    return refuse_form(form, ret_error);
}

aoticache_status aoticache_request_parse(const char *line, aoticache_request_form form, aoticache_request **ret_request,
                                         aoticache_error *ret_error)
{
    if (line == NULL || ret_request == NULL)
        return AOTICACHE_REFUSE_NULL(ret_error, line, ret_request);
    switch (form) {
    case AOTICACHE_REQUEST_TEXT:
        return aoticache_request_parse_text(line, ret_request, ret_error);
    case AOTICACHE_REQUEST_JSON:
        return aoticache_request_parse_json(line, ret_request, ret_error);
    }
    return refuse_form(form, ret_error);
}
