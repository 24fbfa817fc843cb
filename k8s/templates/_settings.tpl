{{- /* Return a key as TOML writes it. */ -}}
{{- define "shoal.key" -}}
{{- regexMatch "^[A-Za-z0-9_-]+$" . | ternary . (toRawJson .) -}}
{{- end -}}

{{- /* Render a dict as TOML: first its values, then its tables. A value of TOML is written as one of JSON is. */ -}}
{{- define "shoal.toml" -}}
{{- $path := .path -}}
{{- if and $path .table -}}
{{- printf "\n[%s]\n" (join "." $path) -}}
{{- end -}}
{{- range $key, $value := .table -}}
{{- if not (kindIs "map" $value) -}}
{{- printf "%s = %s\n" (include "shoal.key" $key) (toRawJson $value) -}}
{{- end -}}
{{- end -}}
{{- range $key, $value := .table -}}
{{- if kindIs "map" $value -}}
{{- include "shoal.toml" (dict "path" (append $path (include "shoal.key" $key)) "table" $value) -}}
{{- end -}}
{{- end -}}
{{- end -}}
