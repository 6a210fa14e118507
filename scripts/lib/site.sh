# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash disable=SC2034,SC2154  # names are shared between these files
# Makes the documentation site: the pages of docs/ and the other Markdown documents, and the manual pages.

site_packages=(mandoc)

ensure_site() {
    ensure_venv site mkdocs==1.6.1 mkdocs-material==9.8.2
}

# Replaces DIRECTORY by the site. Fails if a document is in no section of the site (mkdocs.yml), or if a link leads to a
# page, file or heading that does not exist. BUILD: a build that has made cacheshim.1 and cacheshim.toml.5.
write_site() { # DIRECTORY BUILD
    local out=$1 build=$2 source
    source=$(mktemp -d) || return 1
    at_exit rm -rf "$source"
    _copy_documents "$source" && _convert_manuals "$source/docs/man" "$build" || return 1
    NO_MKDOCS_2_WARNING=1 SITE_SOURCE=$source "$repo/build/venv/site/bin/python" -m mkdocs build --strict --clean \
        --config-file "$repo/mkdocs.yml" --site-dir "$out"
}

# Keeps the repository's layout, so that the documents' links between each other stay valid.
_copy_documents() { # DIRECTORY
    (cd "$repo" && cp -r --parents README.md ARCHITECTURE.md CHANGELOG.md SECURITY.md LICENSE docs/*.md integrations \
        tests/stages.toml tests/README.md tests/*/README.md tests/families/family.py tests/families/shared/steps.py \
        "$1") &&
        sed -i -E 's#\]\((docs/)?man/([a-z.-]+\.[157])\)#](\1man/\2.md)#g' "$1/README.md" "$1"/docs/*.md
}

# The first two manual pages contain tables that the build adds. The headings become Markdown, so that the page has a
# table of contents; the rest stays HTML.
_convert_manuals() { # DIRECTORY BUILD
    local page name
    mkdir "$1"
    for page in "$2/cli/cacheshim.1" "$2/cli/cacheshim.toml.5" "$repo/docs/man/cacheshim-cuda.7"; do
        name=${page##*/}
        {
            printf '# %s(%s)\n\n' "${name%.*}" "${name##*.}"
            mandoc -T html -O fragment "$page" | perl -0pe '
                s{</?(?:section|div)\b[^>]*>}{}g;
                s{<table class="(?:head|foot)">.*?</table>}{}gs;
                s{<h([12]) class="S[hs]" id="([^"]*)">\s*(?:<a[^>]*>)?\s*(.*?)\s*(?:</a>)?\s*</h\1>}{
                    my ($level, $id, $text) = ($1, $2, $3);
                    $text =~ s/\s+/ /g;
                    "\n\n#" . "#" x $level . " $text {: #$id }\n\n"
                }gse'
        } > "$1/$name.md" || return 1
    done
}
