/*
 * loader/package/names: which names an archive may have, and what the name of a file in a package says about it.
 *
 * Names are untrusted. One refused name makes the whole package invalid: its author is malicious, or the file is
 * damaged.
 */
#include "loader/package/package_internal.h"

#include <stdio.h>
#include <string.h>

#define MAX_NAME_BYTES 4095
#define MAX_COMPONENT_BYTES 255

static const char models_directory[] = "data/aotinductor/";

/* Returns the length of the well-formed UTF-8 sequence at `text`, or 0 if there is none (Unicode, table 3-7). */
static size_t sequence_length(const unsigned char *text)
{
    unsigned char first = text[0];
    if (first < 0x80)
        return 1;
    if (first < 0xc2 || first > 0xf4)
        return 0;
    size_t length = first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
    unsigned char low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;
    unsigned char high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;
    if (text[1] < low || text[1] > high) /* the terminator is below every low */
        return 0;
    for (size_t i = 2; i < length; i++)
        if ((text[i] & 0xc0) != 0x80)
            return 0;
    return length;
}

static bool refuse(char *ret_reason, const char *reason)
{
    snprintf(ret_reason, AOTICACHE_PACKAGE_REASON_BYTES, "%s", reason);
    return false;
}

static bool characters_are_safe(const char *name, char *ret_reason)
{
    const unsigned char *at = (const unsigned char *)name;
    while (*at != '\0') {
        size_t length = sequence_length(at);
        if (length == 0)
            return refuse(ret_reason, "it is not UTF-8");
        if (*at < 0x20 || *at == 0x7f || (at[0] == 0xc2 && at[1] < 0xa0))
            return refuse(ret_reason, "it has a control character");
        if (*at == '\\')
            return refuse(ret_reason, "it has a backslash");
        at += length;
    }
    return true;
}

static bool component_is_safe(const char *component, size_t length, char *ret_reason)
{
    if (length == 0)
        return refuse(ret_reason, "it has an empty component");
    if (length > MAX_COMPONENT_BYTES)
        return refuse(ret_reason, "it has a component of more than 255 bytes");
    if (length <= 2 && strncmp(component, "..", length) == 0)
        return refuse(ret_reason, "it has a component \".\" or \"..\"");
    return true;
}

bool aoticache_package_name_is_safe(const char *name, char ret_reason[AOTICACHE_PACKAGE_REASON_BYTES])
{
    if (name[0] == '\0')
        return refuse(ret_reason, "it is empty");
    if (name[0] == '/')
        return refuse(ret_reason, "it is absolute");
    if (strnlen(name, MAX_NAME_BYTES + 1) > MAX_NAME_BYTES)
        return refuse(ret_reason, "it has more than 4095 bytes");
    if (!characters_are_safe(name, ret_reason))
        return false;
    for (const char *at = name; *at != '\0';) {
        size_t length = strcspn(at, "/");
        if (!component_is_safe(at, length, ret_reason))
            return false;
        at += length + (at[length] == '/');
    }
    return true;
}

bool aoticache_package_name_split(const char *name, const char **ret_model, size_t *ret_model_length,
                                  const char **ret_file)
{
    const size_t directory_length = sizeof models_directory - 1;
    if (strncmp(name, models_directory, directory_length) !=
        0) { /* below the top directory, which newer packages have */
        name = strchr(name, '/');
        if (name == NULL || strncmp(++name, models_directory, directory_length) != 0)
            return false;
    }
    const char *model = name + directory_length;
    const char *slash = strrchr(model, '/');
    if (slash == NULL || slash == model || slash[1] == '\0')
        return false;
    *ret_model = model;
    *ret_model_length = (size_t)(slash - model);
    *ret_file = slash + 1;
    return true;
}

bool aoticache_package_name_ends(const char *name, const char *suffix)
{
    size_t length = strlen(name), suffix_length = strlen(suffix);
    return length > suffix_length && strcmp(name + length - suffix_length, suffix) == 0;
}

/* Returns true for the metadata of a library: "x.wrapper_metadata.json" belongs to "x.wrapper.so". */
static bool is_metadata_of(const char *file, const char *library)
{
    size_t stem = strlen(library) - strlen(".so");
    return strncmp(file, library, stem) == 0 && strcmp(file + stem, "_metadata.json") == 0;
}

aoticache_part_kind aoticache_package_kind_of(const char *file, const char *library)
{
    /* Intermediate files of the compile; weights_config.json describes pickled weights. */
    static const char *const sources[] = {".cpp",
                                          ".cu",
                                          ".h",
                                          ".hpp",
                                          ".c",
                                          ".o",
                                          ".a",
                                          ".txt",
                                          ".hip",
                                          "_metadata.json",
                                          "_compile_flags.json",
                                          "_linker_flags.json",
                                          "_serialized_weights.bin"};
    if (strcmp(file, library) == 0)
        return AOTICACHE_PART_LIBRARY;
    if (is_metadata_of(file, library))
        return AOTICACHE_PART_METADATA;
    if (aoticache_package_name_ends(file, "_weights.blob"))
        return AOTICACHE_PART_WEIGHTS;
    for (size_t i = 0; i < sizeof sources / sizeof sources[0]; i++)
        if (aoticache_package_name_ends(file, sources[i]))
            return AOTICACHE_PART_SOURCE;
    return strcmp(file, "weights_config.json") == 0 ? AOTICACHE_PART_SOURCE : AOTICACHE_PART_SIDE;
}
