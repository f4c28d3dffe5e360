# What `./dev package` puts into stockade_<version>_<arch>.deb, and where. Debian's own tools check it: tests/service/package_test.py
set(CMAKE_INSTALL_DEFAULT_COMPONENT_NAME stockade)
set(docs ${CMAKE_BINARY_DIR}/package)
install(TARGETS stockade stockaded RUNTIME DESTINATION bin)
install(DIRECTORY rules/policies rules/detections rules/schema DESTINATION share/stockade FILES_MATCHING PATTERN "*.yaml" PATTERN "*.json")
install(FILES deploy/systemd/stockaded.service DESTINATION /lib/systemd/system)
install(FILES deploy/systemd/config.yaml DESTINATION /etc/stockade)
install(DIRECTORY DESTINATION /etc/stockade/policies.d)
install(DIRECTORY DESTINATION /etc/stockade/rules.d)
install(FILES README.md docs/policy.md docs/config.md docs/threat-model.md docs/events.md docs/event-fields.md docs/operations.md docs/rules.md docs/dns.md
    docs/coverage.md DESTINATION share/doc/stockade)
install(FILES deploy/prometheus/stockade.rules.yaml deploy/grafana/stockade.json deploy/opensearch/stockade-events.json deploy/kafka/consumer.py DESTINATION share/doc/stockade/examples)
install(FILES deploy/debian/copyright DESTINATION share/doc/stockade)

# Written by the programs themselves, so that they say what the programs take.
add_custom_command(OUTPUT ${docs}/stockade.1.gz
    COMMAND /usr/bin/python3 ${PROJECT_SOURCE_DIR}/deploy/debian/documents.py $<TARGET_FILE:stockade> $<TARGET_FILE:stockaded> ${docs}
    DEPENDS stockade stockaded ${PROJECT_SOURCE_DIR}/deploy/debian/documents.py VERBATIM)
add_custom_target(package_documents DEPENDS ${docs}/stockade.1.gz)
install(FILES ${docs}/stockade.1.gz DESTINATION share/man/man1)
install(FILES ${docs}/stockaded.8.gz DESTINATION share/man/man8)
install(FILES ${docs}/changelog.gz DESTINATION share/doc/stockade)
install(FILES ${docs}/stockade.bash DESTINATION share/bash-completion/completions RENAME stockade)
install(FILES ${docs}/stockade.zsh DESTINATION share/zsh/vendor-completions RENAME _stockade)
install(FILES ${docs}/stockade.fish DESTINATION share/fish/vendor_completions.d)

set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME stockade)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_CONTACT "Stockade maintainers <maintainers@stockade.dev>")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_OUTPUT_FILE_PREFIX ${CMAKE_BINARY_DIR}/packages)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION admin)
set(CPACK_DEBIAN_PACKAGE_HOMEPAGE https://stockade.dev)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
# nft: the masquerade of sandboxes with egress.
set(CPACK_DEBIAN_PACKAGE_DEPENDS "adduser, init-system-helpers (>= 1.54~), nftables")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "confines the sandboxes in which AI agents run code")
set(CPACK_DEBIAN_PACKAGE_DESCRIPTION "eBPF programs decide in the kernel, for each sandbox and from an
allowlist, what may be executed, opened, written and connected to.
stockade run starts such a sandbox; stockaded is the agent of the node,
which loads policies, ends sandboxes that break theirs, and tells what
happened as events and metrics.

Needs Linux 6.1 or later; stockade doctor says what a kernel enforces.")
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_EXTRA ${PROJECT_SOURCE_DIR}/deploy/debian/postinst ${PROJECT_SOURCE_DIR}/deploy/debian/prerm
    ${PROJECT_SOURCE_DIR}/deploy/debian/postrm ${PROJECT_SOURCE_DIR}/deploy/debian/conffiles)
include(CPack)
