/*
 * tests/fuzz/fuzz_package: any bytes as a .pt2 package: opened, listed, every part unpacked. Accepted packages must
 * keep the promises of package.h about names and sizes.
 */
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "loader/eager_face.h"
#include "loader/package/package.h"

#define MAX_UNPACKED (16u << 20)

static void require(bool holds)
{
    if (!holds)
        abort();
}

static bool read_pair(void *user, const char *name, const char *value)
{
    *(size_t *)user += strlen(name) + strlen(value);
    return true;
}

static void check_name(const char *name)
{
    require(name[0] != '\0' && strchr(name, '/') == NULL && strchr(name, '\\') == NULL);
    require(strcmp(name, ".") != 0 && strcmp(name, "..") != 0 && strlen(name) <= 255);
}

static void check_model(aoticache_package *package, const aoticache_package_model *model, int to)
{
    size_t length = 0;
    const aoticache_package_model *found = NULL;
    require(model->part_count > 0 && model->parts[0].kind == AOTICACHE_PART_LIBRARY);
    require(strlen(model->name) < 256 && model->name[0] != '\0');
    require(aoticache_package_find_model(package, model->name, &found, NULL) == AOTICACHE_OK && found == model);
    aoticache_package_list_metadata(package, model, read_pair, &length);
    for (size_t i = 0; i < model->part_count; i++) {
        check_name(model->parts[i].name);
        if (model->parts[i].bytes > MAX_UNPACKED)
            continue;
        require(ftruncate(to, 0) == 0 && lseek(to, 0, SEEK_SET) == 0);
        if (aoticache_package_extract_part(package, model, i, to, NULL) == AOTICACHE_OK)
            require((uint64_t)lseek(to, 0, SEEK_CUR) == model->parts[i].bytes);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    aoticache_error error = {.message = ""};
    aoticache_package *package = NULL;
    int fd = memfd_create("package", MFD_CLOEXEC);
    int to = memfd_create("part", MFD_CLOEXEC);
    require(fd >= 0 && to >= 0 && write(fd, bytes, size) == (ssize_t)size);
    aoticache_status status = aoticache_package_open_fd(fd, "fuzzed", &package, &error);
    if (status == AOTICACHE_OK) {
        const aoticache_package_model *model = aoticache_package_model_at(package, 0);
        require(model != NULL);
        for (size_t i = 1; model != NULL; model = aoticache_package_model_at(package, i++))
            check_model(package, model, to);
    } else {
        require(error.message[0] != '\0' && strchr(error.message, '\n') == NULL);
    }
    aoticache_package_close(package);
    close(to);
    close(fd);
    return 0;
}
