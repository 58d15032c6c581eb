# Packages (docs/packaging.md).

DIST     ?= $(BUILD)/dist
RELEASES ?= bookworm

## dist deb rpm wheel sbom  sources, packages, the wheel, the list of components, in build/dist
dist:
	$(Q)scripts/packaging/dist $(DIST)
deb:
	$(Q)scripts/packaging/deb $(DIST)
rpm:
	$(Q)scripts/packaging/rpm $(DIST)
wheel:
	$(Q)PYTHON='$(PYTHON)' VENV=$(VENV) scripts/packaging/wheel $(DIST)
sbom: all
	$(Q)BUILD=$(BUILD) scripts/packaging/sbom $(DIST)
## check-abi  compare the library with the recorded ABI (docs/abi.md)
check-abi: all
	$(Q)BUILD=$(BUILD) scripts/packaging/check-abi

## check-deb check-wheel check-image  packages in fresh systems that debootstrap makes, RELEASES=bookworm (root, minutes)
check-deb:
	$(Q)for release in $(RELEASES); do scripts/packaging/check-deb $$release || exit 1; done
check-wheel: all
	$(Q)for release in $(RELEASES); do scripts/packaging/check-wheel $(DIST) $$release || exit 1; done
## image-rootfs  a directory with the tool and its libraries alone, ROOTFS=DIRECTORY, PACKAGES="model.pt2" in its cache
image-rootfs: all
	$(Q)scripts/packaging/image-rootfs $(or $(ROOTFS),$(BUILD)/rootfs) $(PACKAGES)

check-image: all
	$(Q)for release in $(RELEASES); do scripts/packaging/check-image $$release || exit 1; done
## check-quickstart  make demo, make test and the tutorials in fresh systems, timed, USERS="demo author", RELEASES=bookworm (root, half an hour each)
check-quickstart:
	$(Q)for release in $(RELEASES); do scripts/packaging/check-quickstart $$release || exit 1; done
