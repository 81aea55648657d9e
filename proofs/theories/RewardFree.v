(** One data set for all rewards (Theorem RF): how far the values of every policy, for every reward r_n(s,a) in [0,1], are from
    those of the empirical model.  Checks are about sets of successors; vertices of a cube do the rest. *)
Require Import Reals Lra Lia List Arith Bool.
From EBPI Require Import Sums Model.
Open Scope R_scope.

Definition two_valued (m : R) (B : nat -> bool) (j : nat) : R := if B j then m else 1.

(** A linear function that is not positive at the vertices {1, m}^k is not positive between them, in any unit. *)
Lemma vertices k (c f : nat -> R) (m unit : R) : 0 < unit ->
  (forall j, (j < k)%nat -> unit <= f j <= m * unit) ->
  (forall B, rsum k (fun j => c j * two_valued m B j) <= 0) -> rsum k (fun j => c j * f j) <= 0.
Proof.
  intros P F V. specialize (V (fun j => if Rlt_dec 0 (c j) then true else false)).
  apply Rle_trans with (unit * rsum k (fun j => c j * two_valued m (fun j => if Rlt_dec 0 (c j) then true else false) j)); [|nra].
  rewrite <- rsum_scal. apply rsum_le. intros j L. specialize (F j L). unfold two_valued. destruct (Rlt_dec 0 (c j)); nra.
Qed.

Section RewardFree.
Variable M : mdp.
Variable beta : R.
Hypothesis Hb : beta <> 0.

(** Values n steps before the end lie within a factor [span n] of each other. *)
Definition span (n : nat) : R := exp (Rabs beta * INR n).

(** From the kernel q' to q: L bounds the mean under q by that under q', T the tilt of what comes later. *)
Definition mean_ok (q q' : nat -> nat -> R) (n s a : nat) (L : R) : Prop :=
  forall B, mean (K M (row M n s a)) (q (row M n s a)) (two_valued (span n) B) <=
            L * mean (K M (row M n s a)) (q' (row M n s a)) (two_valued (span n) B).
Definition tilt_ok (q' : nat -> nat -> R) (E : nat -> R) (n s a : nat) (T : R) : Prop :=
  forall B, mean (K M (row M n s a)) (q' (row M n s a)) (fun j => two_valued (span n) B j * E (nxt M n s a j)) <=
            T * mean (K M (row M n s a)) (q' (row M n s a)) (two_valued (span n) B).
Definition reward_free_ok (q q' : nat -> nat -> R) (E : nat -> nat -> R) : Prop :=
  (forall s, E 0%nat s = 1) /\ forall n s a, (a <= amax M)%nat ->
    span n <= E (S n) s \/
    exists L T, 0 <= L /\ mean_ok q q' n s a L /\ tilt_ok q' (E n) n s a T /\ L * T <= E (S n) s.

Variable r : nat -> nat -> nat -> R.      (* any reward of state and action *)
Hypothesis Hr : forall n s a, 0 <= r n s a <= 1.
Definition rew (n s a j : nat) : R := r n s a.
Notation e := (weight rew beta).

Definition unit_of (n : nat) : R := exp (Rmin 0 (beta * INR n)).

Lemma in_span q pi : kernel M q -> forall n s, unit_of n <= Zpi M q e pi n s <= span n * unit_of n.
Proof.
  intros Hq.
  assert (E : forall n, span n * unit_of n = exp (Rmax 0 (beta * INR n))).
  { intros n. unfold span, unit_of. rewrite <- exp_plus. f_equal. pose proof (pos_INR n). unfold Rabs, Rmin, Rmax.
    destruct (Rcase_abs beta); destruct (Rle_dec 0 (beta * INR n)); nra. }
  intros n. rewrite E. unfold unit_of. induction n as [|n IH]; intros s.
  - simpl. rewrite Rmult_0_r. unfold Rmin, Rmax. destruct (Rle_dec 0 0); rewrite exp_0; lra.
  - cbn [Zpi]. unfold U. destruct (Hq (row M n s (pi n s))) as [Pq Sq].
    rewrite <- (mean_const _ _ (exp (Rmin 0 (beta * INR (S n)))) Sq), <- (mean_const _ _ (exp (Rmax 0 (beta * INR (S n)))) Sq).
    assert (W : forall j, e n s (pi n s) j = exp (beta * r n s (pi n s))) by reflexivity.
    pose proof (Hr n s (pi n s)) as R1. pose proof (pos_INR n). pose proof (exp_pos (beta * r n s (pi n s))).
    split; (apply mean_le; [auto|]); intros j _; rewrite W; destruct (IH (nxt M n s (pi n s) j)) as [I1 I2].
    + apply Rle_trans with (exp (beta * r n s (pi n s)) * exp (Rmin 0 (beta * INR n))); [|apply Rmult_le_compat_l; lra].
      rewrite <- exp_plus. apply exp_mono. rewrite S_INR. unfold Rmin.
      destruct (Rle_dec 0 (beta * (INR n + 1))), (Rle_dec 0 (beta * INR n)); nra.
    + apply Rle_trans with (exp (beta * r n s (pi n s)) * exp (Rmax 0 (beta * INR n))); [apply Rmult_le_compat_l; lra|].
      rewrite <- exp_plus. apply exp_mono. rewrite S_INR. unfold Rmax.
      destruct (Rle_dec 0 (beta * (INR n + 1))), (Rle_dec 0 (beta * INR n)); nra.
Qed.

Theorem reward_free_sound q q' E pi : kernel M q -> kernel M q' -> legal M pi -> reward_free_ok q q' E ->
  forall n s, Zpi M q e pi n s <= E n s * Zpi M q' e pi n s.
Proof.
  intros Hq Hq' Lg (E0 & ES). induction n as [|n IH]; intros s; [rewrite E0; simpl; lra|].
  cbn [Zpi]. unfold U. set (a := pi n s). set (k := K M (row M n s a)).
  set (f := fun j => Zpi M q e pi n (nxt M n s a j)). set (f' := fun j => Zpi M q' e pi n (nxt M n s a j)).
  set (w := exp (beta * r n s a)). assert (Pw : 0 < w) by apply exp_pos.
  change (mean k (q (row M n s a)) (fun j => w * f j) <= E (S n) s * mean k (q' (row M n s a)) (fun j => w * f' j)).
  rewrite !mean_scal. cut (mean k (q (row M n s a)) f <= E (S n) s * mean k (q' (row M n s a)) f'); [nra|].
  assert (Pu : 0 < unit_of n) by apply exp_pos.
  assert (F : forall j, unit_of n <= f j <= span n * unit_of n) by (intros; apply in_span; auto).
  assert (F' : forall j, unit_of n <= f' j <= span n * unit_of n) by (intros; apply in_span; auto).
  destruct (Hq (row M n s a)) as [P1 S1]. destruct (Hq' (row M n s a)) as [P2 S2]. fold k in P1, S1, P2, S2.
  assert (N' : unit_of n <= mean k (q' (row M n s a)) f').
  { rewrite <- (mean_const k _ (unit_of n) S2). apply mean_le; auto. intros j _. apply F'. }
  destruct (ES n s a (Lg n s)) as [Cap|(L & T & PL & ML & MT & LT)].
  - apply Rle_trans with (span n * unit_of n).
    + rewrite <- (mean_const k _ (span n * unit_of n) S1). apply mean_le; auto. intros j _. apply F.
    + assert (0 < span n) by apply exp_pos. nra.
  - assert (A : mean k (q (row M n s a)) f <= L * mean k (q' (row M n s a)) f).
    { assert (V : rsum k (fun j => (q (row M n s a) j - L * q' (row M n s a) j) * f j) <= 0).
      { apply vertices with (span n) (unit_of n); auto. intros B. specialize (ML B). unfold mean in ML. fold k in ML.
        rewrite (rsum_ext k _ (fun j => q (row M n s a) j * two_valued (span n) B j - L * (q' (row M n s a) j * two_valued (span n) B j)))
          by (intros; ring). rewrite rsum_minus, rsum_scal. lra. }
      rewrite (rsum_ext k _ (fun j => q (row M n s a) j * f j - L * (q' (row M n s a) j * f j))) in V by (intros; ring).
      rewrite rsum_minus, rsum_scal in V. unfold mean. lra. }
    assert (C : mean k (q' (row M n s a)) f <= T * mean k (q' (row M n s a)) f').
    { apply Rle_trans with (mean k (q' (row M n s a)) (fun j => f' j * E n (nxt M n s a j))).
      { apply mean_le; auto. intros j _. unfold f, f'. rewrite Rmult_comm. apply IH. }
      assert (V : rsum k (fun j => (q' (row M n s a) j * (E n (nxt M n s a j) - T)) * f' j) <= 0).
      { apply vertices with (span n) (unit_of n); auto. intros B. specialize (MT B). unfold mean in MT. fold k in MT.
        rewrite (rsum_ext k _ (fun j => q' (row M n s a) j * (two_valued (span n) B j * E n (nxt M n s a j))
                                        - T * (q' (row M n s a) j * two_valued (span n) B j))) by (intros; ring).
        rewrite rsum_minus, rsum_scal. lra. }
      rewrite (rsum_ext k _ (fun j => q' (row M n s a) j * (f' j * E n (nxt M n s a j)) - T * (q' (row M n s a) j * f' j))) in V
        by (intros; ring).
      rewrite rsum_minus, rsum_scal in V. unfold mean. lra. }
    apply Rle_trans with (1 := A). apply Rle_trans with (L * (T * mean k (q' (row M n s a)) f')).
    + apply Rmult_le_compat_l; auto.
    + rewrite <- Rmult_assoc. apply Rmult_le_compat_r; lra.
Qed.

(** Theorem RF: the policy that is optimal in the model q' (the empirical one) is nearly optimal in q (the true one). *)
Theorem reward_free q q' E E' pi H s1 eps : kernel M q -> kernel M q' -> legal M pi ->
  reward_free_ok q q' E -> reward_free_ok q' q E' ->
  Zpi M q' e pi H s1 = Zopt M q' e (positive beta) H s1 ->
  ln (E H s1 * E' H s1) <= Rabs beta * eps -> Vopt M q rew beta H s1 - V M q rew beta (det pi) H s1 <= eps.
Proof.
  intros Hq Hq' Lg OK OK' Opt HL.
  apply gap_of_ratio with (rho := E H s1 * E' H s1); auto.
  destruct (optimum_attained M q e (positive beta)) as [Lq Att].
  pose proof (reward_free_sound q q' E pi Hq Hq' Lg OK H s1) as A1.
  pose proof (reward_free_sound q' q E' pi Hq' Hq Lg OK' H s1) as A2.
  pose proof (reward_free_sound q q' E _ Hq Hq' Lq OK H s1) as A3.
  pose proof (reward_free_sound q' q E' _ Hq' Hq Lq OK' H s1) as A4.
  rewrite Att in A3, A4.
  assert (W := weight_pos rew beta).
  pose proof (optimum_bounds M q' e Hq' W (det (greedy M q e (positive beta))) H nil s1 (det_proper M _ Lq)) as OB.
  rewrite Zsig_det in OB by auto.
  pose proof (Zpi_pos M q e Hq W pi H s1) as P1. pose proof (Zpi_pos M q' e Hq' W pi H s1) as P2.
  pose proof (Zopt_pos M q e Hq W (positive beta) H s1) as P3.
  pose proof (Zpi_pos M q' e Hq' W (greedy M q e (positive beta)) H s1) as P4.
  assert (PE : 0 < E H s1) by nra. assert (PE' : 0 < E' H s1) by nra.
  destruct (positive beta); rewrite Opt in *.
  - apply Rle_trans with (1 := A3). rewrite Rmult_assoc. apply Rmult_le_compat_l; lra.
  - apply Rle_trans with (1 := A1). rewrite Rmult_assoc. apply Rmult_le_compat_l; lra.
Qed.
End RewardFree.
