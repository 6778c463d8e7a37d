{{/* The name that all objects begin with. */}}
{{- define "specops.name" -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- end }}

{{/* Labels by which a component's pods are selected: (list $ COMPONENT). */}}
{{- define "specops.selector" -}}
app.kubernetes.io/name: specops
app.kubernetes.io/instance: {{ (index . 0).Release.Name | quote }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{- define "specops.labels" -}}
{{- $ := index . 0 -}}
{{ include "specops.selector" . }}
app.kubernetes.io/version: {{ $.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" $.Chart.Name $.Chart.Version }}
specops_rollout: {{ $.Values.rollout.name | quote }}
{{- end }}

{{/* Annotations of a component's pods: (list $ COMPONENT PORT FILES). New files start new pods. */}}
{{- define "specops.podAnnotations" -}}
{{- $ := index . 0 -}}
checksum/files: {{ index . 3 | toJson | sha256sum }}
{{- if $.Values.metrics.annotations }}
prometheus.io/scrape: "true"
prometheus.io/port: {{ index . 2 | quote }}
prometheus.io/path: /metrics
{{- end }}
{{- end }}

{{/* What every pod has: no token for the API server, a user who is not root, a volume that this user may write. */}}
{{- define "specops.pod" -}}
serviceAccountName: {{ .Values.serviceAccount.existing | default (include "specops.name" .) | quote }}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  # At every mount, Always would let the group write to all files. The guard refuses such a journal, and the router
  # such a switch.
  fsGroupChangePolicy: OnRootMismatch
  seccompProfile: {type: RuntimeDefault}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . | quote }}
  {{- end }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- define "specops.confined" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- define "specops.image" -}}
image: {{ printf "%s:%s" .repository (.tag | default .default) | quote }}
imagePullPolicy: {{ .pullPolicy }}
{{- end }}

{{/* A variable from a Secret, by reference only: (list VARIABLE SECRET). */}}
{{- define "specops.secret" -}}
- name: {{ index . 0 }}
  valueFrom: {secretKeyRef: {name: {{ index . 1 | quote }}, key: {{ index . 0 }}}}
{{- end }}

{{/* What a container with the image of specops has: (list $ COMPONENT ARGS). */}}
{{- define "specops.container" -}}
{{- $ := index . 0 -}}
{{- $settings := index $.Values (index . 1) -}}
name: {{ index . 1 }}
{{ include "specops.image" (merge (dict "default" $.Chart.AppVersion) $.Values.image) }}
args: {{ concat (index . 2) (list "/etc/specops/rollout.yaml" "--out" "/var/lib/specops/run") | toJson }}
env:
  # Caches, such as that of fonts.
  - {name: HOME, value: /tmp}
  {{- if and $.Values.routerTokenSecret (eq (index . 1) "guard") }}
  {{- include "specops.secret" (list "SPECOPS_ROUTER_TOKEN" $.Values.routerTokenSecret) | nindent 2 }}
  {{- end }}
  {{- range $variable, $secret := $settings.secrets }}
  {{- include "specops.secret" (list $variable $secret) | nindent 2 }}
  {{- end }}
resources: {{- toYaml $settings.resources | nindent 2 }}
securityContext: {{- include "specops.confined" $ | nindent 2 }}
volumeMounts:
  - {name: rollout, mountPath: /etc/specops, readOnly: true}
  - {name: data, mountPath: /var/lib/specops}
  - {name: tmp, mountPath: /tmp}
{{- end }}

{{- define "specops.volumes" -}}
- name: rollout
  configMap: {name: {{ .Values.rollout.existingConfigMap | default (printf "%s-rollout" (include "specops.name" .)) | quote }}}
- name: data
  persistentVolumeClaim: {claimName: {{ .Values.data.existingClaim | default (printf "%s-data" (include "specops.name" .)) | quote }}}
- name: tmp
  emptyDir: {sizeLimit: 256Mi}
{{- end }}

{{/* What the schema of the values cannot see. Empty where all is right. */}}
{{- define "specops.check" -}}
{{- $name := include "specops.name" . -}}
{{- $pods := printf "%s-router-pods" $name -}}
{{- with .Values.rollout.files -}}
  {{- $file := index . "rollout.yaml" | fromYaml -}}
  {{- with $file.Error -}}
    {{- fail (printf "rollout.yaml is not YAML: %s" .) -}}
  {{- end -}}
  {{- if ne ($file.rollout | toString) $.Values.rollout.name -}}
    {{- fail (printf "rollout.name is %q, and rollout.yaml has %q: expected the same" $.Values.rollout.name ($file.rollout | toString)) -}}
  {{- end -}}
  {{- $listen := dig "guard" "listen" "127.0.0.1:9469" $file -}}
  {{- if and $.Values.guard.enabled (ne $listen "0.0.0.0:9469") -}}
    {{- fail (printf "guard.listen in rollout.yaml is %s: expected 0.0.0.0:9469, as probes and Prometheus reach it" $listen) -}}
  {{- end -}}
  {{- if and (or $.Values.guard.enabled $.Values.report.enabled) (not (dig "addresses" "prometheus" "" $file)) -}}
    {{- fail "rollout.yaml has no addresses.prometheus: guard and report read it" -}}
  {{- end -}}
  {{- if $.Values.router.enabled -}}
    {{- $routers := dig "addresses" "routers" list $file -}}
    {{- $hosts := list -}}
    {{- range $number := until (int $.Values.router.replicas) -}}
      {{- $hosts = append $hosts (printf "%s-router-%d.%s" $name $number $pods) -}}
    {{- end -}}
    {{- $named := list -}}
    {{- range $routers -}}
      {{- $host := . | trimSuffix ":8081" | trimSuffix ".cluster.local" | trimSuffix (printf ".%s.svc" $.Release.Namespace) | trimSuffix (printf ".%s" $.Release.Namespace) -}}
      {{- $named = append $named (ternary $host . (hasSuffix ":8081" .)) -}}
    {{- end -}}
    {{- if ne ($named | sortAlpha | toJson) ($hosts | sortAlpha | toJson) -}}
      {{- fail (printf "addresses.routers in rollout.yaml is [%s]: expected each of the %d routers, [%s:8081]" (join ", " $routers) (int $.Values.router.replicas) (join ":8081, " $hosts)) -}}
    {{- end -}}
  {{- end -}}
  {{- $interval := printf "%vs" (dig "monitor" "scrape_interval_s" 15 $file) -}}
  {{- if and $.Values.metrics.podMonitor.enabled (ne $interval $.Values.metrics.podMonitor.interval) -}}
    {{- fail (printf "metrics.podMonitor.interval is %s, and monitor.scrape_interval_s in rollout.yaml makes %s: expected the same" $.Values.metrics.podMonitor.interval $interval) -}}
  {{- end -}}
{{- end -}}
{{- if .Values.router.enabled -}}
  {{- with .Values.router.files -}}
    {{- range $port := list "8080" "8081" -}}
      {{- if not (contains (printf "listen 0.0.0.0:%s;" $port) (index $.Values.router.files "nginx.conf")) -}}
        {{- fail (printf "nginx.conf does not listen on 0.0.0.0:%s: set route.listen to 0.0.0.0:8080 and route.admin to 0.0.0.0:8081, and render again" $port) -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- end }}
