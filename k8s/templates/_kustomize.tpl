{{- /*
What the chart needs of kustomize: resources, components, patches, labels, nameSuffix and configMapGenerator, read from
the kustomization.yaml files of this chart. Anything else in one of them is an error, so that a manifest cannot differ
between `kubectl apply -k` and `helm install` unnoticed. A template returns text only, so these change what they are
given: objects are collected in the list `objects` of the dict `out`.
*/ -}}

{{- /* Return the text of a file. */ -}}
{{- define "shoal.read" -}}
{{- $text := .root.Files.Get .file -}}
{{- if not (contains "\n" $text) -}}
{{- fail (printf "%s is missing or empty (the files in deploy/ are symbolic links: keep them as such)" .file) -}}
{{- end -}}
{{- $text -}}
{{- end -}}

{{- /* Parse YAML and fail where Helm's fromYaml would return the error as if it were content. */ -}}
{{- define "shoal.parse" -}}
{{- $value := fromYaml .text -}}
{{- if hasKey $value "Error" -}}
{{- fail (printf "%s: %s" .file $value.Error) -}}
{{- end -}}
{{- toJson $value -}}
{{- end -}}

{{- /* Add to `out` what the folder `dir` makes. A Component works on all objects that are there; others on their own. */ -}}
{{- define "shoal.build" -}}
{{- $root := .root -}}
{{- $dir := .dir -}}
{{- $file := printf "%s/kustomization.yaml" $dir -}}
{{- $k := include "shoal.parse" (dict "file" $file "text" (include "shoal.read" (dict "root" $root "file" $file))) | fromJson -}}
{{- range $key := keys $k -}}
{{- if not (has $key (list "apiVersion" "kind" "resources" "components" "patches" "labels" "nameSuffix" "configMapGenerator")) -}}
{{- fail (printf "%s: templates/_kustomize.tpl does not know %q" $file $key) -}}
{{- end -}}
{{- end -}}
{{- $out := .out -}}
{{- if ne $k.kind "Component" -}}
{{- $out = dict "objects" list -}}
{{- end -}}
{{- range $ref := concat ($k.resources | default list) ($k.components | default list) (.components | default list) -}}
{{- /* ../deploy is outside of the chart; the folder of that name here links to it. */ -}}
{{- $path := clean (printf "%s/%s" $dir $ref) | trimPrefix "../" -}}
{{- if hasSuffix ".yaml" $path -}}
{{- range $text := regexSplit "(?m)^---$" (include "shoal.read" (dict "root" $root "file" $path)) -1 -}}
{{- $_ := set $out "objects" (append $out.objects (include "shoal.parse" (dict "file" $path "text" $text) | fromJson)) -}}
{{- end -}}
{{- else -}}
{{- include "shoal.build" (dict "root" $root "dir" $path "out" $out) -}}
{{- end -}}
{{- end -}}
{{- range $generator := $k.configMapGenerator -}}
{{- $data := dict -}}
{{- range $name := $generator.files -}}
{{- $_ := set $data (base $name) (include "shoal.read" (dict "root" $root "file" (printf "%s/%s" $dir $name))) -}}
{{- end -}}
{{- $made := dict "apiVersion" "v1" "kind" "ConfigMap" "metadata" (dict "name" $generator.name) "data" $data -}}
{{- $_ := set $out "objects" (append $out.objects $made) -}}
{{- end -}}
{{- range $patch := $k.patches -}}
{{- $text := $patch.patch | default "" -}}
{{- if $patch.path -}}
{{- $text = include "shoal.read" (dict "root" $root "file" (printf "%s/%s" $dir $patch.path)) -}}
{{- end -}}
{{- include "shoal.patch" (dict "out" $out "text" $text "target" $patch.target "file" $file) -}}
{{- end -}}
{{- range $labels := $k.labels -}}
{{- range $object := $out.objects -}}
{{- $_ := set $object.metadata "labels" (merge (dict) $labels.pairs ($object.metadata.labels | default dict)) -}}
{{- if $labels.includeSelectors -}}
{{- include "shoal.select" (dict "in" $object "pairs" $labels.pairs) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $object := $out.objects -}}
{{- $_ := set $object.metadata "name" (printf "%s%s" $object.metadata.name ($k.nameSuffix | default "")) -}}
{{- end -}}
{{- if ne $k.kind "Component" -}}
{{- $_ := set .out "objects" (concat .out.objects $out.objects) -}}
{{- end -}}
{{- end -}}

{{- /* Apply one patch, strategic or a list of operations, to each object that its target means. */ -}}
{{- define "shoal.patch" -}}
{{- $operations := hasPrefix "- " .text -}}
{{- $patch := dict -}}
{{- if not $operations -}}
{{- $patch = include "shoal.parse" . | fromJson -}}
{{- end -}}
{{- $target := .target | default (dict "kind" $patch.kind "name" (get ($patch.metadata | default dict) "name")) -}}
{{- range $key := keys $target -}}
{{- if not (has $key (list "kind" "name" "labelSelector")) -}}
{{- fail (printf "%s: templates/_kustomize.tpl does not know a target's %q" $.file $key) -}}
{{- end -}}
{{- end -}}
{{- range $object := .out.objects -}}
{{- $meant := and (eq $object.kind $target.kind) (eq ($target.name | default $object.metadata.name) $object.metadata.name) -}}
{{- if and $meant $target.labelSelector -}}
{{- $pair := splitList "=" $target.labelSelector -}}
{{- $label := get ($object.metadata.labels | default dict) (first $pair) | default "" -}}
{{- $meant = and $label (or (eq (len $pair) 1) (eq $label (last $pair))) -}}
{{- end -}}
{{- if and $meant $operations -}}
{{- range $operation := fromYamlArray $.text -}}
{{- include "shoal.operate" (dict "at" $object "steps" (splitList "/" $operation.path | rest) "operation" $operation) -}}
{{- end -}}
{{- else if $meant -}}
{{- include "shoal.merge" (dict "into" $object "patch" (deepCopy (omit $patch "apiVersion" "kind" "metadata"))) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* Remove or replace what `steps` lead to. */ -}}
{{- define "shoal.operate" -}}
{{- $step := first .steps -}}
{{- if gt (len .steps) 1 -}}
{{- $next := "" -}}
{{- if kindIs "slice" .at -}}
{{- $next = index .at (int $step) -}}
{{- else -}}
{{- $next = get .at $step -}}
{{- end -}}
{{- include "shoal.operate" (dict "at" $next "steps" (rest .steps) "operation" .operation) -}}
{{- else if eq .operation.op "remove" -}}
{{- $_ := unset .at $step -}}
{{- else if has .operation.op (list "add" "replace") -}}
{{- $_ := set .at $step .operation.value -}}
{{- else -}}
{{- fail (printf "templates/_kustomize.tpl does not know the operation %q" .operation.op) -}}
{{- end -}}
{{- end -}}

{{- /* Merge `patch` into the dict `into` as Kubernetes does: dicts key by key, lists of named things by their names,
other lists as a whole; null removes a key. */ -}}
{{- define "shoal.merge" -}}
{{- $into := .into -}}
{{- range $key, $value := .patch -}}
{{- $old := get $into $key -}}
{{- $by := "" -}}
{{- if and (kindIs "slice" $value) (kindIs "slice" $old) -}}
{{- range $name := list "mountPath" "containerPort" "name" -}}
{{- if and (not $by) $value (kindIs "map" (first $value)) (hasKey (first $value | default dict) $name) -}}
{{- $by = $name -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if kindIs "invalid" $value -}}
{{- $_ := unset $into $key -}}
{{- else if and (kindIs "map" $value) (kindIs "map" $old) -}}
{{- include "shoal.merge" (dict "into" $old "patch" $value) -}}
{{- else if $by -}}
{{- range $item := $value -}}
{{- $found := false -}}
{{- range $other := $old -}}
{{- if eq (get $item $by) (get $other $by) -}}
{{- $found = true -}}
{{- include "shoal.merge" (dict "into" $other "patch" $item) -}}
{{- end -}}
{{- end -}}
{{- if not $found -}}
{{- $old = append $old $item -}}
{{- end -}}
{{- end -}}
{{- $_ := set $into $key $old -}}
{{- else -}}
{{- $_ := set $into $key $value -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* Add labels to every selector of pods, and to the pods that are made. */ -}}
{{- define "shoal.select" -}}
{{- $pairs := .pairs -}}
{{- if kindIs "slice" .in -}}
{{- range $item := .in -}}
{{- include "shoal.select" (dict "in" $item "pairs" $pairs) -}}
{{- end -}}
{{- else if kindIs "map" .in -}}
{{- range $key, $value := .in -}}
{{- if and (has $key (list "selector" "podSelector" "labelSelector")) (kindIs "map" $value) -}}
{{- $_ := merge (hasKey $value "matchLabels" | ternary $value.matchLabels $value) $pairs -}}
{{- else if and (eq $key "template") (kindIs "map" $value) -}}
{{- $_ := merge $value.metadata.labels $pairs -}}
{{- include "shoal.select" (dict "in" $value.spec "pairs" $pairs) -}}
{{- else -}}
{{- include "shoal.select" (dict "in" $value "pairs" $pairs) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
