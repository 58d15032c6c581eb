/*
 * tests/fuzz/fuzz_manifest: any bytes as the object of a manifest. A parsed manifest keeps the promises of its header:
 * the content, if there is one, follows the first line, and the text written from the manifest parses to the same
 * manifest.
 */
#include <stdlib.h>
#include <string.h>

#include "base/digest.h"
#include "cache/store/manifest.h"

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

static void require(bool holds)
{
    if (!holds)
        abort();
}

static void check_again(aoticache_manifest *manifest, const char *content)
{
    char *text = NULL, *again_text = NULL;
    size_t size = 0, again_size = 0;
    aoticache_manifest *again = NULL;
    require(aoticache_manifest_format(manifest, content, &text, &size, NULL) == AOTICACHE_OK);
    require(aoticache_manifest_parse(text, size, &again, NULL) == AOTICACHE_OK);
    require(again->content_offset == manifest->content_offset && again->file_count == manifest->file_count);
    require(aoticache_digest_equal(&again->key, &manifest->key));
    require(aoticache_manifest_format(again, content, &again_text, &again_size, NULL) == AOTICACHE_OK);
    require(size == again_size && memcmp(text, again_text, size) == 0);
    aoticache_manifest_free(again);
    free(again_text);
    free(text);
}

static void check(aoticache_manifest *manifest, const char *text, size_t size)
{
    const size_t offset = manifest->content_offset;
    const char *content = offset > 0 ? text + offset : NULL;
    require(manifest->file_count > 0);
    require(aoticache_manifest_object_count(manifest) == (offset > 0 ? 0 : manifest->file_count));
    if (content != NULL) {
        aoticache_digest digest;
        require(manifest->file_count == 1 && offset <= size && manifest->files[0].bytes == size - offset);
        require(memchr(text, '\n', size) == text + offset - 1);
        require(aoticache_digest_of(content, size - offset, &digest) == AOTICACHE_OK);
        require(aoticache_digest_equal(&digest, &manifest->files[0].digest));
    }
    check_again(manifest, content);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    aoticache_manifest *manifest = NULL;
    aoticache_error error = {.message = ""};
    char *text = malloc(size > 0 ? size : 1); /* exact size, so that the sanitizer sees reads past the end */
    require(text != NULL);
    if (size > 0)
        memcpy(text, bytes, size);
    aoticache_status status = aoticache_manifest_parse(text, size, &manifest, &error);
    require((status == AOTICACHE_OK) == (manifest != NULL));
    if (status == AOTICACHE_OK)
        check(manifest, text, size);
    else
        require(error.message[0] != '\0' && strchr(error.message, '\n') == NULL &&
                strchr(error.message, '\033') == NULL);
    aoticache_manifest_free(manifest);
    free(text);
    return 0;
}
